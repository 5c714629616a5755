"""Runs in low-precision formats through the command line: stop and resume, export, fine-tuning, packs."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import optimization.loss_scaling
from checkpoints.export.__main__ import main as export
from keras_extensions.backend import tf
from tests.support.record_samples import SEQUENCE
from tests.support.runs import (
    STILL,
    assert_same_run,
    killed_at,
    last_checkpoint,
    logged,
    read_json,
    train,
    trained,
    variables,
    write_config,
    write_dataset,
)
from tests.support.saved_checkpoints import weights_of

pytestmark = pytest.mark.slow

HALF = {"xla": False, "platform": "software", "precision": "float16"}
AUTO = {"name": "AdamW", "learning_rate": {"max_learning_rate": 0.01}, "loss_scaling": "auto"}


@pytest.fixture(scope="module")
def config(root, dataset) -> Path:
    return write_config(
        root / "half.json",
        dataset,
        dataset_dir=None,
        generated_dataset=True,
        total_num_train_samples=2 * 16 * 26,
        packing={"max_sequences_per_pack": 2},
        execution=HALF,
        optimizer_opts=AUTO,
        report=True,
    )


@pytest.fixture(scope="module")
def run(root, config) -> Path:
    """A run on packs in float16 whose loss scale begins so high that it must adapt, and grows every fourth update."""
    with pytest.MonkeyPatch.context() as patch:
        quick(patch)
        return trained(config, root / "runs")


def quick(patch):
    """Make the automatic loss scale change within few updates."""
    patch.setattr(optimization.loss_scaling, "GROWTH_INTERVAL", 4)
    patch.setattr("training.machine.INITIAL_SCALE", 2.0**24)


def test_overflows_are_counted_logged_and_reported(run):
    periods = logged(run)
    overflows = sum(period["metrics"]["overflows"] for period in periods)
    scales = [period["metrics"]["loss_scale"] for period in periods]
    full = {"sequences_per_pack": 2, "tokens_per_pack": SEQUENCE}
    assert all(full.items() <= period["metrics"].items() for period in periods), "generated packs are full"
    assert overflows >= 1 and float(overflows).is_integer()
    assert scales[0] == 1.5 * 2.0**23, "the mean of the first two updates, the second of which was halved"
    assert any(after > before for before, after in itertools.pairwise(scales)), "it grows again"
    log = (run / "train.log").read_text(encoding="utf-8")
    assert f"{overflows:.0f} of 26 updates were skipped because their gradients overflowed" in log
    assert "loss_scale: 12582912 | overflows: " in log
    assert f"{overflows:.0f} updates were skipped" in (run / "report.html").read_text(encoding="utf-8")


def test_weights_are_saved_in_the_format_of_the_computation(run):
    newest = last_checkpoint(run)
    assert {value.dtype for value in variables(run, "weights").values()} == {np.dtype("float16")}
    moments = tf.train.load_checkpoint(str(newest / "optimizer")).get_variable_to_dtype_map()
    assert tf.float16 not in moments.values() and any(name.startswith("loss_scale/") for name in moments)
    assert read_json(newest / "checkpoint.json")["precision"] == "float16"


def test_killed_and_resumed_to_the_bit(run, config, root, monkeypatch):
    quick(monkeypatch)
    killed_at(monkeypatch, 10, config, root / "runs", "--name", "killed")
    resume = ("--name", "killed", "--resume")
    refused = train(config, root / "runs", *resume, "--execution.precision", "float32", status=2)
    assert "begun in float16, and would continue in float32" in refused.error
    train(config, root / "runs", *resume, status=0)
    assert_same_run(root / "runs" / "killed", run)


def test_weights_of_another_format_are_cast_and_the_log_says_so(run, root, dataset):
    config = write_config(
        root / "from-half.json", dataset, 2, execution={**HALF, "precision": "bfloat16"}, optimizer_opts=STILL,
        pretrained_ckpt_path=str(run), enable_stochastic_rounding=False,
    )  # fmt: skip
    assert "saved in float16 and cast to bfloat16" in train(config, root / "runs", status=0).errors
    before, after = weights_of(run), weights_of(root / "runs" / "from-half")
    for weight, value in before.items():
        np.testing.assert_allclose(after[weight], rounded_to_bfloat16(value), rtol=0, atol=1e-8, err_msg=weight)


def assert_exported_with_the_same_numbers(run, folder):
    assert export(["--checkpoint", str(run), "--output", str(folder)]) == 0
    exported = weights_of(folder)
    for name, value in weights_of(run).items():
        np.testing.assert_array_equal(exported[name][: len(value)], value[: len(exported[name])])


def test_exported_as_float32_with_the_same_numbers(run, root):
    assert_exported_with_the_same_numbers(run, root / "exported")


def test_mixed_precision_saves_and_exports_float32(root, dataset):
    """``tests/equivalence/test_replicas.py`` resumes in mixed precision."""
    execution = {"platform": "software", "precision": "mixed_bfloat16", "xla": False}
    config = write_config(root / "mixed.json", dataset, 4, execution=execution)
    assert "graph with parts in XLA, mixed_bfloat16" in train(config, root / "runs", status=0).errors
    run = root / "runs" / "mixed"
    newest = last_checkpoint(run)
    assert {value.dtype for value in variables(run, "weights").values()} == {np.dtype("float32")}
    assert read_json(newest / "checkpoint.json")["precision"] == "mixed_bfloat16"
    assert_exported_with_the_same_numbers(run, root / "mixed-exported")
    rounded = [name for name, value in weights_of(run).items() if np.array_equal(value, rounded_to_bfloat16(value))]
    assert not any(name.endswith("weight") for name in rounded), "the weights have more digits than bfloat16"


def rounded_to_bfloat16(value):
    return tf.cast(tf.cast(value, tf.bfloat16), tf.float32).numpy()


def test_a_scale_that_always_overflows_ends_the_run(root, dataset):
    opts = {**AUTO, "loss_scaling": 1e30}
    config = write_config(root / "lost.json", dataset, updates=300, execution=HALF, optimizer_opts=opts)
    outcome = train(config, root / "runs", status=2)
    assert "the gradients of the last 100 updates up to step 100 overflowed" in outcome.error
    assert "gradients overflow: such updates are skipped and counted" in outcome.errors


def test_fp_exceptions_name_the_layer_and_the_rule_of_auto_is_printed(run, root, dataset):
    poisoned = write_dataset(root / "poisoned", poisoned=3)
    execution = {"xla": True, "platform": "software"}  # XLA has no fast bfloat16 on CPUs, so auto is float32
    config = write_config(root / "strict.json", poisoned, execution=execution, fp_exceptions=True)
    outcome = train(config, root / "runs", status=2)
    rule = "float32 (precision auto: no fast float16 or bfloat16 here; --execution.precision float16 forces float16"
    assert rule in outcome.errors
    assert "float16, stochastic rounding" in (run / "train.log").read_text(encoding="utf-8")
    assert "fp_exceptions: mlm_loss gave" in outcome.error


def test_hugging_face_layers_are_float32(root, dataset):
    config = write_config(root / "theirs.json", dataset, execution=HALF, replace_layers=False)
    assert "Hugging Face's own layers are float32" in train(config, root / "runs", status=2).error
