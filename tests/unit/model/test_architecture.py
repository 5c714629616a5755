"""Block lists, parameter counts and operation counts equal Hugging Face's, and figures computed by hand."""

from __future__ import annotations

import dataclasses

import pytest

from model.architecture import (
    BLOCK_NAMES,
    Architecture,
    block_flops,
    block_parameters,
    model_flops_per_sample,
    total_parameters,
)
from model.tasks import expected_blocks
from tests.support.bert_pairs import ALL_BIASES

TINY = {
    "hidden_size": 32, "vocab_size": 100, "num_attention_heads": 4, "num_hidden_layers": 3, "intermediate_size": 48,
    "max_position_embeddings": 40, "type_vocab_size": 2,
}  # fmt: skip


def parameters(architecture: Architecture, task: str, num_labels: int = 2) -> int:
    blocks = expected_blocks(task, architecture.num_hidden_layers)
    return total_parameters(architecture, blocks, num_labels)


@pytest.mark.parametrize(
    ("task", "head", "labels"),
    [
        ("pretraining", "TFBertForPreTraining", 2),
        ("classification", "TFBertForSequenceClassification", 3),
        ("squad", "TFBertForQuestionAnswering", 2),
    ],
)
def test_parameters_equal_hugging_faces(task: str, head: str, labels: int) -> None:
    import keras_extensions.backend  # noqa: F401 (decides which Keras transformers takes)

    # isort: split
    import transformers

    model = getattr(transformers, head)(transformers.BertConfig(**TINY, num_labels=labels))
    model.build()
    assert parameters(Architecture(**TINY, **ALL_BIASES), task, labels) == model.count_params()


@pytest.mark.parametrize(
    ("option", "value", "block", "difference"),
    [
        ("use_qkv_bias", False, "hid", 3 * 32),
        ("use_projection_bias", False, "hid", 32),
        ("use_cls_layer", False, "heads", 32 * 32 + 3 * 32),
        ("use_prediction_bias", False, "heads", 100),
    ],
)
def test_each_option_removes_its_parameters(option: str, value: bool, block: str, difference: int) -> None:
    full = Architecture(**TINY, **ALL_BIASES)
    less = dataclasses.replace(full, **{option: value})
    for name in BLOCK_NAMES:
        expected = difference if name == block else 0
        assert block_parameters(full, name) - block_parameters(less, name) == expected


def test_bert_base_has_its_published_size() -> None:
    # Devlin et al. 2019, section 3: 110M and 340M parameters.
    base = Architecture(**ALL_BIASES)
    large = dataclasses.replace(
        base, hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
    )
    assert parameters(base, "pretraining") == pytest.approx(110e6, rel=0.01)
    assert parameters(large, "pretraining") == pytest.approx(340e6, rel=0.02)


def test_operations_of_a_layer_by_hand() -> None:
    architecture = Architecture(
        hidden_size=2, num_attention_heads=1, num_hidden_layers=1, intermediate_size=3, vocab_size=5
    )
    # S=4: four products of 4×2 by 2×2, scores 4×2 by 2×4, context 4×4 by 4×2, feed-forward 4×2×3 twice.
    by_hand = 2 * (4 * (4 * 2 * 2) + 4 * 2 * 4 + 4 * 4 * 2 + 2 * (4 * 2 * 3))
    assert block_flops(architecture, "hid", 4) == by_hand
    heads = 2 * (3 * 2 * 5) + 2 * (2 * 2)  # 3 masked positions; next sentence
    pool = 2 * (2 * 2)
    assert model_flops_per_sample(architecture, expected_blocks("pretraining", 1), 4, 3) == 3 * (by_hand + heads + pool)
