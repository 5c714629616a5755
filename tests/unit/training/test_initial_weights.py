"""The architecture follows from the config and the weights, and random weights are refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from checkpoints.folder import Checkpoint
from checkpoints.pretrained.pretrained import Pretrained, without_other_head
from data_utils.records.arrays import GeneratedReader
from data_utils.records.features import PACKS_FORMAT, pretraining_features
from data_utils.records.manifest import write_manifest
from execution.processes import Processes
from keras_extensions.backend import tf
from model.architecture import Architecture
from model.tasks import CLASSIFICATION, TASKS, TOKEN_CLASSIFICATION
from settings.schema import TrainingConfig
from tests.support.bert_pairs import ALL_BIASES
from tests.support.config_files import FINE_TUNING, changed, load_config, write
from training.initial_weights import (
    DataSet,
    ResumedWeights,
    cast_note,
    check_stages,
    configured_weights,
    described_data,
    refuse_random_weights,
    resolved_architecture,
    trained_positions,
)
from training.trainer import set_initial_weights
from utilities.errors import UserError

TRAINED = {
    "hidden_size": 64, "vocab_size": 30522, "num_attention_heads": 4, "num_hidden_layers": 3, "intermediate_size": 128,
    "max_position_embeddings": 256, "type_vocab_size": 2, "hidden_act": "gelu_new", "layer_norm_eps": 1e-6,
    "hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3, "initializer_range": 0.02, **ALL_BIASES,
}  # fmt: skip


def resolved(tmp_path: Path, trained_with: dict[str, Any] | None = None, **change: Any) -> Architecture:
    """Return the result for a model with an unknown name, whose weights were trained with these sizes."""
    config = write(tmp_path, changed({**FINE_TUNING, "bert_model_name": "someone/some-bert"}, change))
    start = Pretrained("someone/some-bert", weights={}, architecture=TRAINED if trained_with is None else trained_with)
    return resolved_architecture(load_config("squad", ["--config", str(config)]).config, start)


def test_weights_decide_everything_without_sizes(tmp_path):
    assert resolved(tmp_path) == Architecture(**TRAINED, embedding_serialization_factor=2)


@pytest.mark.parametrize(("dropout", "do_training"), [(0.3, True), (0.2, True), (None, True), (0.3, False)])
def test_a_heads_own_dropout_is_reported(dropout, do_training, tmp_path, monkeypatch, caplog):
    start = Pretrained("some-bert", weights={}, architecture=TRAINED, settings={"classifier_dropout": dropout})
    monkeypatch.setattr("training.initial_weights.open_pretrained", lambda *_: start)
    config = TrainingConfig(pretrained_ckpt_path="x", do_training=do_training)
    for task in TASKS:
        configured_weights(config, task, DataSet(None, 128))
    line = "some-bert: its classifier_dropout, 0.3, is not followed; the head has the dropout of hidden_dropout_prob"
    assert caplog.messages == [line] * (2 if dropout == 0.3 and do_training else 0)


def test_stages_on_several_devices_must_fit_the_loaded_weights(tmp_path):
    path = write(tmp_path, {**FINE_TUNING, "bert_model_name": "someone/some-bert"})
    stages = ["--ipu-config.pipeline-stages", "emb", "hid", "hid", "qa_head"]
    batch = ["--global-batch.grad-acc-steps-per-replica", "8"]
    given = load_config("squad", ["--config", str(path), *stages, *batch]).config.ipu_config.pipeline_stages
    three = Architecture(num_hidden_layers=3)
    for name, pipelined in (("graphcore", False), ("software", True)):
        with pytest.raises(UserError, match=r"pipeline_stages .* 3 encoder layers"):
            check_stages(given, three, SimpleNamespace(name=name, pipelined=pipelined))
    check_stages(given, three, SimpleNamespace(name="software", pipelined=False))
    check_stages(given, Architecture(num_hidden_layers=2), SimpleNamespace(name="graphcore"))


def test_options_of_the_config_take_precedence(tmp_path):
    a = resolved(tmp_path, use_qkv_split=False, use_projection_bias=False)
    assert (a.use_qkv_split, a.use_qkv_bias, a.use_projection_bias) == (False, False, False)
    assert a.use_prediction_bias


def test_unreplaced_layers_have_all_options(tmp_path):
    a = resolved(tmp_path, {**TRAINED, **dict.fromkeys(ALL_BIASES, False)}, replace_layers=False)
    assert all(getattr(a, name) for name in ALL_BIASES)


def test_factor_that_does_not_divide_the_vocabulary_is_ignored(tmp_path):
    a = resolved(tmp_path, {**TRAINED, "vocab_size": 119547})
    assert (a.vocab_size, a.embedding_serialization_factor) == (119547, 1)
    description = {"architecture": dataclasses.asdict(a), "config": {}, "files": {}}
    saved = ResumedWeights(Checkpoint(tmp_path / "weights", description))
    for factor, used in (("2", 1), ("3", 3)):
        flags = ["--config", str(write(tmp_path, FINE_TUNING)), "--embedding-serialization-factor", factor]
        resumed = resolved_architecture(load_config("squad", flags).config, saved)
        assert resumed.embedding_serialization_factor == used


SIZE_NAMES = (
    "hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size", "max_position_embeddings"
)  # fmt: skip
SIZES = {name: TRAINED[name] for name in SIZE_NAMES}


def test_weights_decide_what_the_config_leaves_unset(tmp_path):
    a = resolved(tmp_path, bert_config={**SIZES, "vocab_size": 30528})
    assert (a.vocab_size, a.hidden_act, a.layer_norm_eps) == (30528, "gelu_new", 1e-6)
    assert a.hidden_dropout_prob == 0.1  # of training, not of the weights
    a = resolved(tmp_path, bert_config={**SIZES, "vocab_size": 30528, "hidden_act": "gelu"})
    assert a.hidden_act == "gelu"


def test_number_of_heads_comes_from_the_config_if_unknown(tmp_path):
    trained_with = {name: value for name, value in TRAINED.items() if name != "num_attention_heads"}
    assert resolved(tmp_path, trained_with, bert_config=SIZES).num_attention_heads == 4
    with pytest.raises(UserError, match="does not specify its num_attention_heads"):
        resolved(tmp_path, trained_with)


def test_too_long_sequences_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"max_seq_length is 384, but someone/some-bert has 256"):
        resolved(tmp_path, max_seq_length=384)


def test_evaluation_of_random_weights_is_refused():
    start = Pretrained("runs/mine", weights={}, architecture={})
    start.report.missing = ["qa_outputs.bias", "qa_outputs.weight"]
    with pytest.raises(UserError, match=r"runs/mine lacks qa_outputs\.bias and 1 more, so its scores would be random"):
        refuse_random_weights(start, allowed=False)
    refuse_random_weights(start, allowed=True)
    refuse_random_weights(Pretrained("runs/mine", weights={}, architecture={}), allowed=False)


@pytest.mark.parametrize(
    "settings, task, kept",
    [
        ({"architectures": ["BertForSequenceClassification"]}, TOKEN_CLASSIFICATION, False),
        ({"architectures": ["BertForTokenClassification"]}, CLASSIFICATION, False),
        ({"architectures": ["BertForTokenClassification"]}, TOKEN_CLASSIFICATION, True),
        ({"architectures": ["SomethingElse"]}, CLASSIFICATION, True),
        ({}, CLASSIFICATION, True),
    ],
)
@pytest.mark.parametrize("native", [False, True])
def test_the_classifier_of_another_task_is_not_taken(settings, task, kept, native):
    if native:
        named = settings.get("architectures", [None])[0]
        settings = {"task": next((name for name, entry in TASKS.items() if entry.hugging_face == named), None)}
    weights = dict.fromkeys(("bert.pooler.dense.bias", "classifier.bias", "classifier.weight"))
    start = without_other_head(Pretrained("it", weights, architecture={}, settings=settings, native=native), task)
    assert ("classifier.weight" in start.weights, "bert.pooler.dense.bias" in start.weights) == (kept, True)


@pytest.mark.parametrize(
    "settings, precision, note",
    [
        ({}, "float32", ""),
        ({}, "mixed_bfloat16", ""),  # whose weights are float32
        ({"precision": "mixed_bfloat16"}, "float32", ""),
        ({"precision": "float16"}, "mixed_bfloat16", ", saved in float16 and cast to float32"),
        ({"dtype": "bfloat16"}, "float32", ", saved in bfloat16 and cast to float32"),
    ],
)
def test_log_names_a_cast_of_the_weights(settings: dict[str, str], precision: str, note: str) -> None:
    assert cast_note(Pretrained("a checkpoint", {}, TRAINED, settings=settings), precision) == note


@pytest.mark.parametrize("before, now", [(64, 128), (128, 128), (512, 512), (None, 256)])
def test_positions_that_were_trained_earlier_remain_trained(before, now, tmp_path):
    """Of other projects' weights, all positions count as trained."""
    config = load_config("squad", ["--config", str(write(tmp_path, FINE_TUNING))]).config
    assert config.max_seq_length == 128
    architecture = Architecture(**TRAINED)
    start = Pretrained("weights", weights={}, architecture=TRAINED, trained_positions=before)
    longest = described_data(config.data_folder, config.max_seq_length).longest
    assert trained_positions(longest, start, architecture) == now
    assert trained_positions(longest, None, architecture) == 128


def test_positions_of_packs_are_those_of_their_sequences(tmp_path):
    settings = {"max_seq_length": 128, "packing": {"unpacked_max_seq_length": 32}}
    write_manifest(tmp_path, settings, {}, [], {}, None, PACKS_FORMAT)
    options = ["--dataset-dir", str(tmp_path), "--packing.max-sequences-per-pack", "4"]
    config = load_config("squad", ["--config", str(write(tmp_path, FINE_TUNING)), *options]).config
    assert described_data(config.data_folder, config.max_seq_length).longest == 32
    assert trained_positions(32, None, Architecture(**TRAINED)) == 32


@pytest.mark.parametrize("process", [0, 1])
def test_only_the_chief_computes_word_vectors(process):
    """Training begins with its weights in all processes."""
    context: Any = SimpleNamespace(
        config=SimpleNamespace(word_vectors=True, seed=1), architecture=Architecture(), processes=Processes(2, process)
    )
    data: Any = SimpleNamespace(reader=GeneratedReader(pretraining_features(16, 2, 30), seed=1))
    table = tf.Variable(tf.zeros([30, 8]))
    source: Any = SimpleNamespace(get_input_embeddings=lambda: SimpleNamespace(weight=table))
    set_initial_weights(context, data, None, source)
    assert bool(tf.reduce_any(table != 0)) == (process == 0)
