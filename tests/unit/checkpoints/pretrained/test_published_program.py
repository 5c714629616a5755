"""Checkpoints of Graphcore's published program are read to the bit, with the optimizer's state."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from checkpoints.export.__main__ import main as export
from checkpoints.pretrained.opening import open_pretrained
from settings.metadata import stated_in
from tests.support.published_checkpoints import (
    Options,
    Sizes,
    graph_paths,
    random_weights,
    write_published,
    write_random,
)
from utilities.errors import UserError

SIZES = Sizes(layers=12)  # layers 10 and 11 come after 1 in the order of names, not of numbers
AS_PUBLISHED, WITH_ALL = Options(), Options(merged=False, biases=True)
CASES = [
    ("pretraining", AS_PUBLISHED),
    ("pretraining", WITH_ALL._replace(transform=True)),
    ("squad", AS_PUBLISHED),
    ("squad", WITH_ALL),
    ("classification", AS_PUBLISHED),
    ("classification", WITH_ALL),
]


def written(folder: Path, task: str = "pretraining", options: Options = AS_PUBLISHED, sizes: Sizes = SIZES) -> Path:
    arrays = random_weights(task, sizes, options)
    return write_published(folder / "120.ckpt", graph_paths(task, arrays, sizes.layers, options))


def run_config(**changes: object) -> str:
    sizes = {
        "hidden_size": 16, "num_attention_heads": 4, "num_hidden_layers": 12, "intermediate_size": 32,
        "vocab_size": 96, "max_position_embeddings": 24, "layer_norm_eps": 1e-3, "hidden_dropout_prob": 0.0,
    }  # fmt: skip
    return json.dumps({"max_seq_length": 128, "bert_config": {**sizes, **changes}, "use_cls_layer": False})


@pytest.mark.parametrize(("task", "options"), CASES)
def test_weights_and_moments_are_equal_to_the_bit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, task: str, options: Options
) -> None:
    prefix, arrays, moments = write_random(tmp_path / "120.ckpt", task, SIZES, options, 120)
    start = open_pretrained(str(prefix), "k")
    assert start.state is not None and start.state.updates == 120
    for read, expected in zip((start.weights, start.state.first, start.state.second), (arrays, *moments)):
        assert sorted(read) == sorted(expected)
        for name, value in expected.items():
            np.testing.assert_array_equal(read[name].value(), value, err_msg=name)
    assert start.settings["task"] == task and start.unknown == []
    assert ("the context before the question" in caplog.text) is (task == "squad")  # in their data_utils/squad_v1
    expected_sizes = {
        "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 12, "vocab_size": 96, "type_vocab_size": 2,
        "max_position_embeddings": 24, "use_qkv_split": not options.merged, "use_qkv_bias": options.biases,
        "use_projection_bias": options.biases, "use_cls_layer": options.transform, "hidden_act": "gelu_new",
    }  # fmt: skip
    assert {name: start.architecture[name] for name in expected_sizes} == expected_sizes


def test_a_prefix_a_file_and_a_folder_name_it_and_it_may_have_no_optimizer(tmp_path: Path) -> None:
    prefix = written(tmp_path)
    written(tmp_path / "other").with_suffix(".ckpt.index").replace(tmp_path / "9.ckpt.index")  # earlier, by its number
    for path in (prefix, Path(f"{prefix}.index"), tmp_path):
        start = open_pretrained(str(path), "k")
        assert start.origin == str(prefix) and start.state is None


def test_the_config_of_the_run_beside_it_completes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prefix, output = written(tmp_path / "run"), tmp_path / "exported"
    command = ["--checkpoint", str(prefix), "--output", str(output)]
    assert export(command) == 2
    assert "does not specify its num_attention_heads; put the config that it was trained" in capsys.readouterr().err
    beside = prefix.with_name("bert_config.json")
    beside.write_text(run_config())
    assert export(command) == 0
    exported = json.loads((output / "config.json").read_text())
    assert [exported[name] for name in ("num_attention_heads", "layer_norm_eps", "hidden_act")] == [4, 1e-3, "gelu_new"]
    stated = stated_in(prefix)  # for --plan
    assert stated["num_attention_heads"] == 4 and "use_cls_layer" not in stated
    beside.write_text(run_config(hidden_act="gelu"))
    assert open_pretrained(str(prefix), "k").architecture["hidden_act"] == "gelu"
    beside.write_text(run_config(num_hidden_layers=6))
    with pytest.raises(UserError, match=r"bert_config\.json: num_hidden_layers is 6, but the weights have 12; put the"):
        open_pretrained(str(prefix), "k")


def test_another_models_checkpoint_is_refused(tmp_path: Path) -> None:
    prefix = write_published(tmp_path / "3.ckpt", {"encoder/kernel": np.zeros((2, 2), np.float16)})
    with pytest.raises(UserError, match=r"3\.ckpt is a TensorFlow checkpoint, but not of a BERT of this project"):
        open_pretrained(str(prefix), "k")


def test_a_missing_file_of_data_is_named(tmp_path: Path) -> None:
    prefix = written(tmp_path)
    data = Path(f"{prefix}.data-00000-of-00001")
    data.unlink()
    with pytest.raises(UserError, match=r"120\.ckpt\.data-00000-of-00001: is missing"):
        open_pretrained(str(prefix), "k")
    data.with_name("120.ckpt.data-00001-of-00002").touch()
    with pytest.raises(UserError, match=r"120\.ckpt\.data-00000-of-00002: is missing"):
        open_pretrained(str(prefix), "k")
