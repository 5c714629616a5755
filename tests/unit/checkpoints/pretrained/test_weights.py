"""Weights' names in other projects are translated to PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest

from checkpoints.pretrained.native_checkpoint import encoder_names
from checkpoints.pretrained.weights import (
    Weight,
    from_google,
    from_pytorch,
    from_tensorflow,
    is_encoder_weight,
    renamed,
    without_optimizer,
)
from tests.support.bert_pairs import architecture
from tests.support.hf_models import hugging_face
from tests.support.pytorch_names import pytorch_arrays

QUERY = "bert.encoder.layer.11.attention.self.query"
NORM = "bert.encoder.layer.0.output.LayerNorm"


@pytest.mark.parametrize(
    "rule, name, expected, transposed",
    [
        (from_pytorch, f"{QUERY}.weight", f"{QUERY}.weight", False),
        (from_pytorch, "encoder.layer.0.output.LayerNorm.gamma", f"{NORM}.weight", False),
        (from_pytorch, "module.bert.encoder.layer.0.output.LayerNorm.beta", f"{NORM}.bias", False),
        (from_pytorch, "model.classifier.weight", "classifier.weight", False),
        (from_pytorch, "_orig_mod.module.encoder.layer.0.output.LayerNorm.weight", f"{NORM}.weight", False),
        (from_pytorch, f"_orig_mod.{QUERY}.weight", f"{QUERY}.weight", False),
        (from_pytorch, f"module._orig_mod.{QUERY}.weight", f"{QUERY}.weight", False),
        (from_pytorch, "pooler.dense.bias", "bert.pooler.dense.bias", False),
        (from_tensorflow, "tf_bert_model_3/bert/encoder/layer_._0/output/LayerNorm/gamma:0", f"{NORM}.weight", False),
        (from_tensorflow, "tf_bert_model/nsp___cls/seq_relationship/kernel:0", "cls.seq_relationship.weight", True),
        (from_google, "bert/encoder/layer_11/attention/self/query/kernel", f"{QUERY}.weight", True),
        (from_google, "bert/embeddings/word_embeddings", "bert.embeddings.word_embeddings.weight", False),
        (from_google, "cls/predictions/output_bias", "cls.predictions.bias", False),
        (from_google, "cls/seq_relationship/output_weights", "cls.seq_relationship.weight", False),
        (from_google, "cls/squad/output_bias", "qa_outputs.bias", False),
        (from_google, "output_weights", "classifier.weight", False),
    ],
)  # fmt: skip
def test_names(rule, name, expected, transposed):
    assert rule(name) == (expected, transposed)


@pytest.mark.parametrize("rule, name", [(from_pytorch, "bert.embeddings.position_ids"), (from_google, "global_step")])
def test_names_that_are_not_of_weights(rule, name):
    assert rule(name) is None


def test_the_names_of_the_encoder():
    names = {name for name in pytorch_arrays(hugging_face("pretraining")) if is_encoder_weight(name)}
    assert encoder_names(architecture().num_hidden_layers) == names
    assert not any(name.startswith(("cls.", "bert.pooler.")) for name in names)


def weight(value: float) -> Weight:
    return Weight((1,), lambda: np.array([value], np.float32), "place")


def test_tied_weights_are_taken_once():
    weights = {"cls.predictions.decoder.weight": weight(1), "cls.predictions.decoder.bias": weight(2)}
    assert renamed(weights, from_pytorch)["cls.predictions.bias"].value() == 2
    weights["cls.predictions.bias"] = weight(3)
    result = renamed(weights, from_pytorch)
    assert list(result) == ["cls.predictions.bias"] and result["cls.predictions.bias"].value() == 3


def test_the_optimizers_moments_are_left_out():
    names = ("bert/pooler/dense/bias", "bert/pooler/dense/bias/adam_m", "bert/pooler/dense/bias/lamb_v", "global_step")
    assert list(without_optimizer(dict.fromkeys(names, weight(0)))) == ["bert/pooler/dense/bias", "global_step"]
