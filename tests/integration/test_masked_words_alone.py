"""Pre-training without next-sentence prediction: data, losses, runs, and what their checkpoints can be used for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from benchmarks.minimal_pairs import pair_scores
from benchmarks.pair_files import Pair
from checkpoints.export.hf_folder import export
from checkpoints.pretrained.weights import WORD_TABLE
from data_utils.doctor.__main__ import main as examine  # room: doctor
from data_utils.tokenizer import read_vocabulary
from execution.interface import Update
from keras_extensions.backend import keras, tf
from model.architecture import block_parameters
from model.losses import PretrainingObjective
from model.tasks import PRETRAINING
from tests.integration.test_preprocessing import read_records
from tests.support.bert_pairs import (
    OUTPUTS,
    architecture,
    assert_same_gradients,
    batch,
    dataset_of,
    hugging_face,
    on_cpu,
    pair_of,
    source_with_random_weights,
)
from tests.support.fine_tuning_runs import write_sst2
from tests.support.pytorch_masked_words import pytorch_scores
from tests.support.pytorch_process import NEEDS_PYTORCH
from tests.support.runs import (
    STILL,
    TEXT_PREDICTIONS,
    TEXT_SEQUENCE,
    metrics,
    prepare_dataset,
    read_json,
    run_command,
    train,
    trained,
    variables,
    write_text,
)
from tests.support.runs import write_text_config as write_config
from tests.support.updates import make_updates

pytestmark = pytest.mark.slow

ALONE = ("--use-next-sentence", "false")


@pytest.fixture(scope="module")
def dataset(root) -> Path:
    flags = ("--no-next-sentence", "--pack", "3", "--whole-word-masking")
    return prepare_dataset(root / "data", write_text(root / "text.txt"), *flags)


@pytest.fixture(scope="module")
def run(root, dataset) -> Path:
    config = write_config(root / "alone.json", total_num_train_samples=16 * 24)
    return trained(config, root / "runs", "--dataset-dir", str(dataset), *ALONE)


def test_rows_are_single_segments(dataset):
    records, vocabulary = read_records(dataset, TEXT_SEQUENCE, TEXT_PREDICTIONS), read_vocabulary(dataset / "vocab.txt")
    _, _, first, last, _ = vocabulary.special_ids().tolist()
    lengths = records["input_mask"].sum(1)
    assert not records["segment_ids"].any() and not records["next_sentence_labels"].any()
    assert ((records["input_ids"] == first).sum(1) == 1).all() and ((records["input_ids"] == last).sum(1) == 1).all()
    assert (records["input_ids"][np.arange(len(lengths)), lengths - 1] == last).all()
    assert records["masked_lm_weights"].sum() / lengths.sum() == pytest.approx(0.15, abs=0.02)
    assert read_json(dataset / "manifest.json")["settings"]["next_sentence"] is False
    assert examine([str(dataset), "--workers", "1"]) in (0, None)  # room: doctor
    assert examine([str(dataset / "packed"), "--workers", "1"]) in (0, None)  # room: doctor


@pytest.mark.parametrize("replace", [True, False])
def test_loss_logits_and_gradients_are_hugging_faces(replace, monkeypatch):
    a = architecture(use_next_sentence=False)
    monkeypatch.setitem(OUTPUTS, PRETRAINING, ("masked_lm",))
    source, data = source_with_random_weights(a), batch(a)
    assert type(source).__name__ == "TFBertForMaskedLM"
    pair = pair_of(source, a, on_cpu(), replace=replace)
    assert sum(int(tf.size(w)) for w in pair.blocks[-1].weights) >= block_parameters(a, "heads")
    labels = np.full_like(data["input_ids"], -100)  # what Hugging Face's loss leaves out
    rows, slots = np.nonzero(data["masked_lm_weights"])
    labels[rows, data["masked_lm_positions"][rows, slots]] = data["masked_lm_ids"][rows, slots]
    with tf.GradientTape() as tape:
        theirs = hugging_face(source, data, labels=labels)
    words = tf.gather(theirs.logits, data["masked_lm_positions"], batch_dims=1)
    np.testing.assert_allclose(pair(data)["masked_lm"], words, rtol=1e-5, atol=1e-5)
    if replace:
        expected = tape.gradient(theirs.loss, source.trainable_variables)
        objective, tensors = PretrainingObjective(next_sentence=False), {n: tf.constant(v) for n, v in data.items()}
        with tf.GradientTape() as tape:
            loss = objective.sums(pair(data), tensors)["mlm_loss"] / objective.counts(tensors)["mlm_loss"]
        ours = tape.gradient(loss, pair.model.trainable_variables)
        assert_same_gradients(pair, list(map(tf.convert_to_tensor, ours)), list(map(tf.convert_to_tensor, expected)))
    pair.platform.compile(
        pair.model, keras.optimizers.SGD(0.1), PretrainingObjective(next_sentence=False), Update(2), 1
    )
    (means,) = make_updates(pair.platform, pair.model, dataset_of([data], 2), 1)
    np.testing.assert_allclose(means["mlm_loss"], float(tf.squeeze(theirs.loss)), rtol=1e-5)
    assert not any(name.startswith("nsp") for name in means)


def test_a_run_has_one_loss_and_no_pooler(run):
    assert {name for row in metrics(run) for name in row["metrics"] if "loss" in name} == {"mlm_loss"}
    assert not [name for name in variables(run, "weights") if "pool" in name or "next_sentence" in name]
    assert read_json(run / "resolved_config.json")["config"]["use_next_sentence"] is False


def test_packs_and_stages_with_a_pooler(root, dataset):
    stages = {"pipeline_stages": [["emb", "hid"], ["enc_out", "pool", "heads"]]}
    stages["pipeline_device_mapping"] = [0, 0]
    rows = {"micro_batch_size": 4, "grad_acc_steps_per_replica": 4}
    packing = {"max_sequences_per_pack": 3}
    config = write_config(root / "packed.json", packing=packing, ipu_config=stages, global_batch=rows)
    run = trained(config, root / "runs", "--dataset-dir", str(dataset / "packed"), *ALONE)
    assert metrics(run)[-1]["metrics"]["sequences_per_pack"] > 1
    assert "nsp_loss" not in metrics(run)[-1]["metrics"]


def test_data_without_next_sentences_is_refused_for_next_sentence_prediction(root, dataset):
    outcome = train(write_config(root / "refused.json"), root / "runs", "--dataset-dir", str(dataset), status=2)
    assert "use_next_sentence" in outcome.error and "manifest.json" in outcome.error


@pytest.fixture(scope="module")
def exported(root, run) -> Path:
    assert export(str(run), root / "exported").head.model == "BertForMaskedLM"
    return root / "exported"


@NEEDS_PYTORCH
def test_the_export_is_a_masked_lm_of_pytorch(exported, run):
    texts = ["The cat sees the dog near the house.", "The house sees the cat near the tree.", "Near the dog."]
    expected = pytorch_scores("BertForMaskedLM", exported, texts)
    pairs = [Pair(texts[0], texts[1], "", "", ""), Pair(texts[0], texts[2], "", "", "")]
    for checkpoint in (run, exported):
        scores = pair_scores(pairs, str(checkpoint))
        np.testing.assert_allclose(scores, [[expected[0], expected[1]], [expected[0], expected[2]]], rtol=0, atol=1e-4)


def test_a_masked_lm_of_hugging_face_is_continued(root, dataset, exported, caplog):
    config = write_config(root / "continued.json", bert_config=None, optimizer_opts=STILL)
    arguments = ("--dataset-dir", str(dataset), "--pretrained-ckpt-path", str(exported), *ALONE)
    continued = variables(trained(config, root / "runs", *arguments), "weights")
    assert not [record for record in caplog.records if "random numbers" in record.getMessage()]
    assert not [name for name in continued if "pool" in name]
    (table,) = (value for name, value in continued.items() if name.startswith("emb/") and "word" in name)
    np.testing.assert_allclose(table, load_file(exported / "model.safetensors")[WORD_TABLE], atol=1e-8)


def test_fine_tuning_starts_the_pooler_at_random(root, run, caplog):
    folder = root / "glue"
    folder.mkdir()
    write_sst2(folder)
    config = write_config(root / "sst2.json", bert_config=None, glue_task="sst2", dataset_dir=str(folder))
    arguments = ("--pretrained-ckpt-path", str(run), "--output-dir", str(root / "runs"), "--num-epochs", "1")
    run_command("classification", config, *arguments, "--total-num-train-samples", "none", status=0)
    random = [record.getMessage() for record in caplog.records if "random numbers" in record.getMessage()]
    assert sorted(message.split()[0].rstrip(":") for message in random) == [
        "bert.pooler.dense.bias", "bert.pooler.dense.weight", "classifier.bias", "classifier.weight"
    ]  # fmt: skip
