"""The architecture that config and pretrained weights decide together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from checkpoints.pretrained.pretrained import LoadReport, Pretrained
from model.architecture import Architecture
from tests.unit.config_files import FINE_TUNING, changed, write
from training.architecture import resolved_architecture
from training.start import refuse_random_weights
from utilities.config.loading import load_config
from utilities.errors import UserError

EVERYTHING = dict.fromkeys(
    ("use_qkv_bias", "use_qkv_split", "use_projection_bias", "use_cls_layer", "use_prediction_bias"), True
)
HELD = {
    "hidden_size": 64, "vocab_size": 30522, "num_attention_heads": 4, "num_hidden_layers": 3, "intermediate_size": 128,
    "max_position_embeddings": 256, "type_vocab_size": 2, "hidden_act": "gelu_new", "layer_norm_eps": 1e-6,
    "hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3, "initializer_range": 0.02, **EVERYTHING,
}  # fmt: skip


def resolved(tmp_path: Path, held: dict[str, Any] | None = None, **change: Any) -> Architecture:
    """For a model of an unknown name whose weights hold ``held``."""
    config = write(tmp_path, changed({**FINE_TUNING, "bert_model_name": "someone/some-bert"}, change))
    start = Pretrained("someone/some-bert", weights={}, architecture=HELD if held is None else held)
    return resolved_architecture(load_config("squad", ["--config", str(config)]).config, start)


def test_without_sizes_in_the_config_everything_is_as_the_weights_have_it(tmp_path):
    assert resolved(tmp_path) == Architecture(**HELD, embedding_serialization_factor=2)


def test_options_of_the_config_hold(tmp_path):
    a = resolved(tmp_path, use_qkv_split=False, use_projection_bias=False)
    assert (a.use_qkv_split, a.use_qkv_bias, a.use_projection_bias) == (False, False, False)
    assert a.use_prediction_bias


def test_layers_that_are_not_replaced_leave_nothing_out(tmp_path):
    a = resolved(tmp_path, {**HELD, **dict.fromkeys(EVERYTHING, False)}, replace_layers=False)
    assert all(getattr(a, name) for name in EVERYTHING)


def test_a_vocabulary_that_the_factor_does_not_divide_is_not_cut_into_slices(tmp_path):
    a = resolved(tmp_path, {**HELD, "vocab_size": 119547})
    assert (a.vocab_size, a.embedding_serialization_factor) == (119547, 1)


SIZES = {name: HELD[name] for name in ("hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size",
                                       "max_position_embeddings")}  # fmt: skip


def test_with_sizes_in_the_config_the_weights_decide_what_it_leaves_open(tmp_path):
    a = resolved(tmp_path, bert_config={**SIZES, "vocab_size": 30528})
    assert (a.vocab_size, a.hidden_act, a.layer_norm_eps) == (30528, "gelu_new", 1e-6)
    assert a.hidden_dropout_prob == 0.1  # of training, not of the weights
    a = resolved(tmp_path, bert_config={**SIZES, "vocab_size": 30528, "hidden_act": "gelu"})
    assert a.hidden_act == "gelu"


def test_weights_of_unknown_heads_are_taken_at_the_configs_word(tmp_path):
    held = {name: value for name, value in HELD.items() if name != "num_attention_heads"}
    assert resolved(tmp_path, held, bert_config=SIZES).num_attention_heads == 4
    with pytest.raises(UserError, match="does not tell its num_attention_heads"):
        resolved(tmp_path, held)


def test_other_sizes_and_too_long_sequences_are_refused(tmp_path):
    with pytest.raises(
        UserError, match=r"bert_config\.num_hidden_layers is 4, but someone/some-bert was trained with 3"
    ):
        resolved(tmp_path, bert_config={**SIZES, "num_hidden_layers": 4})
    with pytest.raises(UserError, match=r"max_seq_length is 384, but someone/some-bert has 256"):
        resolved(tmp_path, max_seq_length=384)


def test_an_evaluation_of_random_weights_is_refused():
    class Filled(Pretrained):
        def report(self) -> LoadReport:
            return LoadReport(missing=["qa_outputs.bias", "qa_outputs.weight"])

    start = Filled("runs/mine", weights={}, architecture={})
    with pytest.raises(UserError, match=r"runs/mine lacks qa_outputs\.bias and 1 more, so its scores would be random"):
        refuse_random_weights(start, allowed=False)
    refuse_random_weights(start, allowed=True)
    refuse_random_weights(Pretrained("runs/mine", weights={}, architecture={}), allowed=False)
