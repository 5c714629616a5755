"""Pre-training from text to checkpoint and report, through the command line."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from keras_extensions.backend import tf
from tests.integration.runs import VOCABULARY, metrics, prepare_dataset, pretrain, write_config, write_text


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("pretraining")


@pytest.fixture(scope="module")
def text(place) -> Path:
    return write_text(place / "text.txt")


@pytest.fixture(scope="module")
def dataset(place, text) -> Path:
    return prepare_dataset(place / "data", text)


@pytest.fixture(scope="module")
def run(place, dataset) -> Path:
    """A finished run of 240 updates."""
    config = write_config(place / "first.json", total_num_train_samples=16 * 240)
    outcome = pretrain(config, place / "runs", "--dataset-dir", str(dataset))
    assert outcome.status == 0, outcome.errors
    return place / "runs" / "first"


def weights(checkpoint: Path):
    """Name → value, read by TensorFlow alone."""
    reader = tf.train.load_checkpoint(str(checkpoint / "weights"))
    names = [name for name in reader.get_variable_to_shape_map() if name.endswith("VARIABLE_VALUE")]
    return {name: reader.get_tensor(name) for name in names}


def last_checkpoint(run: Path) -> Path:
    return sorted((run / "checkpoints").glob("step-*"))[-1]


def test_the_loss_falls_below_what_frequencies_give(run, dataset):
    entropy = json.loads((dataset / "manifest.json").read_text())["unigram_entropy_nats"]
    losses = [period["metrics"]["mlm_loss"] for period in metrics(run)]
    assert losses[0] > entropy  # a model that knows nothing
    assert losses[-1] < entropy  # a model that reads context
    assert abs(losses[0] - math.log(VOCABULARY)) < 1.0


def test_log_lines_are_those_that_scripts_parse(run):
    lines = [line for line in (run / "train.log").read_text().splitlines() if "throughput" in line]
    assert len(lines) == 60  # 240 updates, 4 in a period
    patterns = (r"throughput: *(.*?) samples\/sec", r"mlm_loss: *(\d*\.\d*)", r"nsp_loss: *(\d*\.\d*)")
    for line in lines:
        for pattern in patterns:
            found = re.findall(pattern, line)
            assert len(found) == 1 and float(found[0]) > 0


def test_the_run_folder_tells_what_was_done(run):
    resolved = json.loads((run / "resolved_config.json").read_text())
    assert resolved["config"]["bert_config"]["hidden_size"] == 32
    assert resolved["origins"]["dataset_dir"] == "command line"
    assert resolved["derived"]["updates"] == 240
    assert "tensorflow" in json.loads((run / "environment.json").read_text())["packages"]
    dropped = {row["source"]: row["weights_dropped"] for row in json.loads((run / "conversion.json").read_text())}
    assert dropped["TFBertSelfAttention"] == ["query.bias", "key.bias", "value.bias"]
    assert "mlm loss" in (run / "report.html").read_text()
    assert list((run / "tensorboard").glob("events.out.tfevents.*"))


def test_checkpoint_holds_weights_by_block_name(run):
    saved = weights(last_checkpoint(run))
    shapes = {name.replace("/.ATTRIBUTES/VARIABLE_VALUE", ""): value.shape for name, value in saved.items()}
    assert shapes["emb/embeddings/word"] == (VOCABULARY, 32)
    assert shapes["hid_1/layer/attention/qkv/kernel"] == (32, 96)
    assert shapes["heads/masked_lm/bias"] == (VOCABULARY,)


def test_the_same_seed_gives_the_same_run(place, dataset):
    config = write_config(place / "twice.json")
    for _ in range(2):
        assert pretrain(config, place / "runs", "--dataset-dir", str(dataset)).status == 0
    one, two = (weights(last_checkpoint(place / "runs" / name)) for name in ("twice", "twice-2"))
    for name in one:
        np.testing.assert_array_equal(one[name], two[name])


def test_replicas_fold_into_accumulation(place, dataset):
    batches = {
        "replicas": {"micro_batch_size": 4, "replicas": 2, "grad_acc_steps_per_replica": 2},
        "accumulation": {"micro_batch_size": 16, "replicas": 1, "grad_acc_steps_per_replica": 1},
    }
    model = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    for name, batch in batches.items():
        config = write_config(place / f"{name}.json", global_batch=batch)
        values = json.loads(config.read_text())
        values["bert_config"].update(model)
        config.write_text(json.dumps(values))
        assert pretrain(config, place / "runs", "--dataset-dir", str(dataset)).status == 0
    one, two = (metrics(place / "runs" / name) for name in batches)
    for left, right in zip(one, two):
        assert left["samples"] == right["samples"]
        np.testing.assert_allclose(left["metrics"]["mlm_loss"], right["metrics"]["mlm_loss"], rtol=1e-4)


def test_phase_2_starts_from_the_weights_of_phase_1(place, run, text):
    longer = prepare_dataset(place / "longer", text, sequence=64, predictions=10)
    still = {"name": "AdamW", "weight_decay_rate": 0.0, "learning_rate": {"max_learning_rate": 1e-12}}
    config = write_config(place / "phase2.json", max_seq_length=64, max_predictions_per_seq=10, optimizer_opts=still)
    arguments = ("--dataset-dir", str(longer), "--pretrained-ckpt-path", str(run))
    outcome = pretrain(config, place / "runs", *arguments)
    assert outcome.status == 0, outcome.errors
    first, second = weights(last_checkpoint(run)), weights(last_checkpoint(place / "runs" / "phase2"))
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_allclose(first[name], second[name], atol=1e-8)


def test_generated_data_and_lamb_need_no_data_set(place):
    config = write_config(
        place / "generated.json", optimizer_opts={"name": "LAMB", "loss_scaling": 64.0}, generated_dataset=True
    )
    assert pretrain(config, place / "runs").status == 0


def test_compile_only_trains_nothing(place):
    config = write_config(place / "compile.json", generated_dataset=True, execution={"xla": True})
    assert pretrain(config, place / "runs", "--compile-only").status == 0
    assert not (place / "runs" / "compile" / "metrics.jsonl").exists()


def test_unreplaced_layers_train_too(place, dataset):
    config = write_config(place / "unreplaced.json", replace_layers=False, total_num_train_samples=32)
    assert pretrain(config, place / "runs", "--dataset-dir", str(dataset)).status == 0


def damaged(run: Path, place: Path) -> Path:
    """A copy of a run whose only checkpoint has one byte changed."""
    copy = place / "damaged"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(run, copy)
    data = next(last_checkpoint(copy).glob("weights.data*"))
    content = bytearray(data.read_bytes())
    content[100] ^= 1
    data.write_bytes(content)
    return copy


ERRORS = {
    "data of another length": (("--max-seq-length", "16"), ("max_seq_length", "32")),
    "data of a larger vocabulary": (("--bert-config.vocab-size", "100"), ("vocab",)),
    "no such data": (("--dataset-dir", "nowhere"), ("nowhere",)),
    "no such checkpoint": (("--pretrained-ckpt-path", "nowhere"), ("pretrained_ckpt_path", "nowhere")),
    "checkpoint of another model": (
        ("--pretrained-ckpt-path", "{run}", "--bert-config.hidden-size", "64"),
        ("bert_config.hidden_size", "64", "32"),
    ),
    "damaged checkpoint": (("--pretrained-ckpt-path", "{damaged}"), ("no intact checkpoint",)),
    "no GPU": (("--execution.device", "gpu"), ("execution.device", "gpu")),
    "no IPU": (("--execution.platform", "graphcore"), ("execution.platform",)),
    "less than one batch": (
        ("--global-batch.grad-acc-steps-per-replica", "100000", "--num-epochs", "1"),
        ("global_batch.grad_acc_steps_per_replica", "num_epochs"),
    ),
    "diverging": (
        ("--optimizer-opts.learning-rate.max-learning-rate", "1e30", "--optimizer-opts.name", "AdamW"),
        ("max_learning_rate", "step"),
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_are_one_line_with_the_fix(case, place, run, dataset):
    arguments, told = ERRORS[case]
    if case == "no GPU" and tf.config.list_physical_devices("GPU"):
        pytest.skip("this machine has a GPU")
    arguments = [text.format(run=run, damaged=damaged(run, place)) for text in arguments]
    config = write_config(place / "broken.json")
    outcome = pretrain(config, place / "runs", "--dataset-dir", str(dataset), *arguments)
    assert outcome.status == 2
    lines = [line for line in outcome.errors.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    assert "Traceback" not in outcome.errors
    for word in told:
        assert word in lines[0]
