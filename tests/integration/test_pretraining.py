"""Pre-training from text to checkpoint and report, through the command line."""

from __future__ import annotations

import functools
import html
import math
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from transformers import BertConfig, TFBertModel

from data_utils.records.features import pretraining_features
from data_utils.records.reader import RecordReader
from data_utils.word_vectors import word_vectors
from keras_extensions.backend import tf
from tests.support.runs import (
    SMALL,
    STILL,
    TEXT_PREDICTIONS,
    TEXT_SEQUENCE,
    TEXT_VOCABULARY,
    metrics,
    prepare_dataset,
    read_json,
    read_lines,
    train,
    trained,
    variables,
    write_text,
    write_text_config,
)

pytestmark = pytest.mark.slow

write_config = functools.partial(write_text_config, sizes=SMALL)


@pytest.fixture(scope="module")
def text(root) -> Path:
    return write_text(root / "text.txt")


@pytest.fixture(scope="module")
def dataset(root, text) -> Path:
    return prepare_dataset(root / "data", text)


@pytest.fixture(scope="module")
def run(root, dataset) -> Path:
    config = write_config(root / "first.json", total_num_train_samples=16 * 240)
    return trained(config, root / "runs", "--dataset-dir", str(dataset))


def test_the_loss_falls_below_the_unigram_entropy_and_the_log_has_the_baselines(run, dataset):
    manifest = read_json(dataset / "manifest.json")
    entropy, context_free = manifest["unigram_entropy_nats"], manifest["context_free"]["loss_nats"]
    assert 0.8 * entropy < context_free < entropy
    log = (run / "train.log").read_text()
    records = manifest["totals"]["records"]
    assert f"training on {records:,} samples: 240 updates, global batch 16, {240 * 16 / records:.2f} epochs" in log
    assert f"{context_free:.4f} nats: context-free baseline" in log and f"{entropy:.4f} nats: unigram" in log
    losses = [period["metrics"]["mlm_loss"] for period in metrics(run)]
    assert losses[0] > entropy  # the model has random weights
    assert losses[-1] < entropy
    assert abs(losses[0] - math.log(TEXT_VOCABULARY)) < 1.0


def test_hugging_faces_layers_and_a_vocabulary_larger_than_the_data_sets(root, dataset, caplog):
    """The uniform baseline is that of the model."""
    config = write_config(root / "wide.json", total_num_train_samples=16, replace_layers=False)
    run = trained(config, root / "runs", "--dataset-dir", str(dataset), "--bert-config.vocab-size", "1000")
    assert f"1,000 rows, that of the data set {TEXT_VOCABULARY} pieces" in caplog.text
    assert f"{math.log(1000):.4f} nats: uniform baseline, ln(1,000)" in (run / "train.log").read_text()


def test_the_run_folder_has_config_environment_conversion_and_report(run):
    resolved = read_json(run / "resolved_config.json")
    assert resolved["config"]["bert_config"]["hidden_size"] == 32
    assert resolved["origins"]["dataset_dir"] == "command line"
    assert resolved["derived"]["updates"] == 240
    counted = f"{resolved['derived']['trainable_parameters']:,} parameters"
    assert counted in (run / "train.log").read_text() and resolved["derived"]["layers"] == 2
    assert "tensorflow" in read_json(run / "environment.json")["packages"]
    begin = read_lines(run / "history.jsonl")[0]
    assert begin["command"].startswith("python ") and begin["folder"] == os.getcwd()
    assert begin["command"] in html.unescape((run / "report.html").read_text())
    dropped = {row["source"]: row["weights_dropped"] for row in read_json(run / "conversion.json")}
    assert dropped["TFBertSelfAttention"] == ["query.bias", "key.bias", "value.bias"]
    assert "masked-LM loss" in (run / "report.html").read_text()
    assert list((run / "tensorboard").glob("events.out.tfevents.*"))


def test_random_weights_start_with_word_embeddings_from_the_data(root, dataset):
    config = write_config(root / "vectors.json", total_num_train_samples=16, optimizer_opts=STILL, word_vectors=True)
    table = variables(trained(config, root / "runs", "--dataset-dir", str(dataset)), "weights")["emb/embeddings/word"]
    reader = RecordReader(dataset, pretraining_features(TEXT_SEQUENCE, TEXT_PREDICTIONS, TEXT_VOCABULARY))
    vectors = word_vectors(reader, *table.shape, seed=1984)
    np.testing.assert_allclose(table, 0.02 * vectors, atol=1e-6)


def test_a_head_that_the_weights_lack_begins_with_the_frequencies_of_the_data(root, dataset):
    """As those of a sentence encoder lack it; the rest of the head is random."""
    sizes = {"vocab_size": TEXT_VOCABULARY, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    weights = root / "encoder"
    encoder = TFBertModel(BertConfig(**sizes, intermediate_size=64))
    encoder.build()
    encoder.save_pretrained(weights, safe_serialization=True)
    shutil.copy(dataset / "vocab.txt", weights)
    config = write_config(root / "head.json", total_num_train_samples=16, optimizer_opts=STILL, bert_config=None)
    run = trained(config, root / "runs", "--dataset-dir", str(dataset), "--pretrained-ckpt-path", str(weights))
    counts = np.zeros(TEXT_VOCABULARY)
    for each in tf.data.TFRecordDataset(sorted(map(str, dataset.glob("*.tfrecord")))):
        row = {
            name: value.int64_list.value
            for name, value in tf.train.Example.FromString(each.numpy()).features.feature.items()
        }
        ids = np.array(row["input_ids"])[np.array(row["input_mask"]) > 0]
        for place, piece in zip(row["masked_lm_positions"], row["masked_lm_ids"]):
            if place > 0:
                ids[place] = piece
        counts += np.bincount(ids, minlength=TEXT_VOCABULARY)
    frequencies = (counts + 0.5) / (counts + 0.5).sum()
    np.testing.assert_allclose(variables(run, "weights")["heads/masked_lm/bias"], np.log(frequencies), atol=1e-5)


def test_phase_2_starts_from_the_weights_of_phase_1(root, run, text):
    """Also if the config asks for word embeddings from the data, which are for random weights.

    The vectors of the positions that only phase 2 has are copies of those of words in phase 1.
    """
    longer = prepare_dataset(root / "longer", text, sequence=64, predictions=10)
    config = write_config(
        root / "phase2.json", max_seq_length=64, max_predictions_per_seq=10, optimizer_opts=STILL, word_vectors=True
    )
    arguments = ("--dataset-dir", str(longer), "--pretrained-ckpt-path", str(run))
    first, second = variables(run, "weights"), variables(trained(config, root / "runs", *arguments), "weights")
    assert first.keys() == second.keys()
    positions = first["emb/embeddings/position"]
    words = positions[1 : TEXT_SEQUENCE - 1]
    first["emb/embeddings/position"] = np.concatenate([positions[:1], *[words] * len(positions)])[: len(positions)]
    for name in first:
        np.testing.assert_allclose(first[name], second[name], atol=1e-8)


ERRORS = {
    "no GPU": (("--execution.device", "gpu"), ("execution.device", "gpu")),
    "less than one batch": (
        ("--global-batch.grad-acc-steps-per-replica", "100000", "--num-epochs", "1"),
        ("global_batch.grad_acc_steps_per_replica", "num_epochs"),
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_are_one_line_with_the_fix(case, root, dataset):
    arguments, named = ERRORS[case]
    if case == "no GPU" and tf.config.list_physical_devices("GPU"):
        pytest.skip("this machine has a GPU")
    config = write_config(root / "broken.json")
    outcome = train(config, root / "runs", "--dataset-dir", str(dataset), *arguments, status=2)
    assert all(word in outcome.error for word in named)
