"""Embeddings, their losses and gradients equal PyTorch's, of padded rows, of packs, and of a real model."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from checkpoints.export.hf_folder import export
from checkpoints.pretrained.opening import open_pretrained
from checkpoints.pretrained.sentence_transformers import embedding_settings
from checkpoints.pretrained.weights import from_tensorflow
from data_utils.classification.features import text_features
from data_utils.records.arrays import ArrayReader
from data_utils.records.features import SCORE, Feature, fine_tuning_features
from data_utils.records.packs import make_rows
from data_utils.tokenizer import load_tokenizer
from execution.software.precision import Numerics
from keras_extensions.backend import tf
from model.architecture import Architecture
from model.huggingface import build_hf_model
from model.losses import ACCURACY, LOSS, SEQUENCES_PER_PACK
from model.tasks import SENTENCE_EMBEDDING
from tasks import train
from tasks.embed import main as embed
from tasks.sentence_embedding import RankingObjective, SimilarityObjective, recalls
from tests import ROOT
from tests.support.bert_pairs import (
    architecture,
    assert_same_gradients,
    hugging_face,
    on_cpu,
    pair_of,
    source_with_random_weights,
)
from tests.support.fine_tuning_runs import BAD, GOOD, PIECES, sentence, write_pieces
from tests.support.pytorch_process import NEEDS_PYTORCH, run_pytorch
from tests.support.real_data import real_data
from tests.support.runs import read_json
from utilities.errors import Stopped

SAMPLES, LENGTH = 7, 32
OBJECTIVES = {
    "pairs": (2, RankingObjective(2, 20.0)),
    "triples": (3, RankingObjective(3, 20.0)),
    "scores": (2, SimilarityObjective()),
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root, chance = tmp_path_factory.mktemp("embeddings"), random.Random(3)
    write_pieces(root / "vocab.txt", PIECES)
    texts = [[sentence(chance, chance.choice([*GOOD, *BAD])) for _ in range(3)] for _ in range(SAMPLES)]
    scores = [round(chance.uniform(-1, 1), 2) for _ in texts]
    (root / "samples.json").write_text(json.dumps({"texts": texts, "scores": scores}), encoding="utf-8")
    (root / "texts.txt").write_text("".join(f"{text}\n" for row in texts for text in row), encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def expected(root: Path) -> dict[str, np.ndarray]:
    run_pytorch("tests.support.pytorch_embeddings", str(root))
    return dict(np.load(root / "expected.npz"))


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


@NEEDS_PYTORCH
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_embeddings_of_files_equal_pytorch(root: Path, expected: dict, pooling: str, tmp_path: Path) -> None:
    """The folder ``cls`` has the files of sentence-transformers, which say how to pool, and to normalize."""
    arguments = ["--checkpoint", str(root / pooling), "--file", str(root / "texts.txt"), "--max-seq-length", "32"]
    assert embed([*arguments, "--output", str(tmp_path / "result.npy")]) == 0
    result, theirs = np.load(tmp_path / "result.npy"), expected[f"{pooling}/embeddings"]
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, unit(theirs) if pooling == "cls" else theirs, atol=1e-5)
    other = {"mean": "cls", "cls": "mean"}[pooling]
    assert embed([*arguments, "--output", str(tmp_path / "other.npy"), "--pooling", other]) == 0
    assert np.abs(np.load(tmp_path / "other.npy") - result).max() > 0.01


@NEEDS_PYTORCH
def test_an_exported_folder_keeps_how_embeddings_are_made(root: Path, expected: dict, tmp_path: Path) -> None:
    export(str(root / "cls"), tmp_path / "again")
    settings = embedding_settings(open_pretrained(str(tmp_path / "again"), "x"))
    assert settings == ("cls", True, LENGTH)
    assert [module["path"] for module in json.loads((tmp_path / "again" / "modules.json").read_text())] == [
        "", "1_Pooling", "2_Normalize"
    ]  # fmt: skip
    arguments = ["--file", str(root / "texts.txt"), "--output", str(tmp_path / "result.npy")]
    assert embed(["--checkpoint", str(tmp_path / "again"), *arguments]) == 0
    np.testing.assert_allclose(np.load(tmp_path / "result.npy"), unit(expected["cls/embeddings"]), atol=1e-5)


@NEEDS_PYTORCH
def test_a_run_pools_and_scales_as_the_weights_that_it_continues(root: Path, expected: dict, tmp_path: Path) -> None:
    """Also where it is resumed, and exported. The rate is 0, so that the embeddings stay."""
    texts = (root / "texts.txt").read_text("utf-8").splitlines()
    rows = [f"{first},{second}\n" for first, second in zip(texts[::2], texts[1::2])]
    (tmp_path / "pairs.csv").write_text("anchor,positive\n" + "".join(rows), encoding="utf-8")
    still = {"learning_rate": {"max_learning_rate": 1e-12}, "weight_decay_rate": 0.0}
    config = {
        "extends": str(ROOT / "configs" / "fine_tuning.json"), "pretrained_ckpt_path": str(root / "cls"),
        "embedding": {"train_file": str(tmp_path / "pairs.csv")}, "do_validation": False, "optimizer_opts": still,
        "global_batch": {"micro_batch_size": 2}, "output_dir": str(tmp_path),
    }  # fmt: skip
    with pytest.raises(Stopped):
        train(SENTENCE_EMBEDDING, config, name="still", until=lambda period: True, global_batches_per_log=2)
    run = train(SENTENCE_EMBEDDING, config, name="still", resume=True, global_batches_per_log=2).folder
    export(str(run), tmp_path / "exported")
    assert "2_Normalize" in (tmp_path / "exported" / "modules.json").read_text("utf-8")
    for checkpoint in (run, tmp_path / "exported"):
        output = tmp_path / f"{checkpoint.name}.npy"
        texts_of = ["--file", str(root / "texts.txt"), "--max-seq-length", "32"]
        assert embed(["--checkpoint", str(checkpoint), *texts_of, "--output", str(output)]) == 0
        np.testing.assert_allclose(np.load(output), unit(expected["cls/embeddings"]), atol=1e-5)


def batch_of(root: Path, texts: int, samples_in_a_row: int) -> dict[str, np.ndarray]:
    """Return all samples as one micro batch; with more than one in a row, the last row is not full."""
    content = read_json(root / "samples.json")
    rows = [tuple(sample[:texts]) for sample in content["texts"]]
    width = LENGTH * samples_in_a_row
    features = text_features(load_tokenizer(str(root / "vocab.txt"), True), rows, width, separate=True)
    arrays = {**features.arrays, "labels": np.repeat(content["scores"], texts)}
    spec = fine_tuning_features(width, 64, Feature("labels", 1, SCORE))
    reader = make_rows(
        ArrayReader(spec, arrays), features.lengths, texts * samples_in_a_row, 0, cls_positions=True, texts=texts
    )
    assert reader.count < SAMPLES or samples_in_a_row == 1
    return reader.read(np.arange(reader.count))


def shapes_of(data: dict[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    return {name: values.shape[1:] for name, values in data.items()}


@NEEDS_PYTORCH
@pytest.mark.parametrize("samples_in_a_row", [1, 2])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_loss_and_gradients_equal_pytorch(root: Path, expected: dict, name: str, samples_in_a_row: int) -> None:
    texts, objective = OBJECTIVES[name]
    start, data = open_pretrained(str(root / "mean"), "x"), batch_of(root, texts, samples_in_a_row)
    a = Architecture(**start.architecture)
    source = build_hf_model(SENTENCE_EMBEDDING, a, seed=0)
    start.set_initial_weights(source)
    pair = pair_of(source, a, on_cpu(), SENTENCE_EMBEDDING, shapes_of(data))
    tensors = {key: tf.constant(value) for key, value in data.items()}
    with tf.GradientTape() as tape:
        sums, counts = objective.sums(pair(data), tensors), objective.counts(tensors)
        loss = sums[LOSS] / counts[LOSS]
    assert counts[LOSS] == SAMPLES and sums.keys() == counts.keys()
    assert (SEQUENCES_PER_PACK in sums) == (samples_in_a_row > 1)
    np.testing.assert_allclose(loss, expected[f"{name}/loss"], rtol=1e-5)
    theirs = []
    for variable in source.trainable_variables:
        weight, is_transposed = from_tensorflow(variable.name)
        gradient = expected[f"{name}/{weight}"]
        theirs.append(gradient.T if is_transposed else gradient)
    assert_same_gradients(pair, tape.gradient(loss, pair.model.trainable_variables), theirs)


@pytest.mark.parametrize("replace", [True, False])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_padded_rows_and_packs_equal_hugging_face(root: Path, pooling: str, replace: bool) -> None:
    a, data = architecture(pooling=pooling), batch_of(root, 3, 2)
    source = source_with_random_weights(a, SENTENCE_EMBEDDING)
    packs = pair_of(source, a, on_cpu(), SENTENCE_EMBEDDING, shapes_of(data), replace=replace)
    in_packs = packs(data)["embeddings"].numpy()  # (rows, 6, H)
    shapes = dict.fromkeys(("input_ids", "input_mask", "segment_ids"), (LENGTH,))
    padded = pair_of(source, a, on_cpu(), SENTENCE_EMBEDDING, shapes, replace=replace)
    for row, mask in enumerate(data["input_mask"]):
        for number in range(1, mask.max() + 1):
            tokens = {name: np.zeros((1, LENGTH), np.int32) for name in shapes}
            length = int((mask == number).sum())
            tokens["input_ids"][0, :length] = data["input_ids"][row, mask == number]
            tokens["input_mask"][0, :length] = 1
            hidden = hugging_face(source, tokens).last_hidden_state.numpy()[0, :length]
            theirs = hidden[0] if pooling == "cls" else hidden.mean(axis=0)
            np.testing.assert_allclose(in_packs[row, number - 1], theirs, atol=1e-5)
            np.testing.assert_allclose(padded(tokens)["embeddings"][0], theirs, atol=1e-5)


def test_mixed_precision_is_close(root: Path) -> None:
    data, losses = batch_of(root, 3, 1), []
    tensors = {key: tf.constant(value) for key, value in data.items()}
    source = source_with_random_weights(architecture(), SENTENCE_EMBEDDING)
    for precision in ("float32", "mixed_bfloat16"):
        platform = on_cpu(numerics=Numerics(precision))
        pair = pair_of(source, architecture(), platform, SENTENCE_EMBEDDING, shapes_of(data))
        outputs = pair(data)
        assert outputs["embeddings"].dtype == tf.float32
        losses.append(float(OBJECTIVES["triples"][1].sums(outputs, tensors)[LOSS]))
    assert losses[1] == pytest.approx(losses[0], rel=0.02) and losses[0] != losses[1]


def test_accuracy_and_recalls_by_hand() -> None:
    vectors = np.eye(4, dtype=np.float32)[[0, 0, 1, 1, 2, 2, 3, 0]].reshape(4, 2, 4)
    batch = {"input_mask": tf.ones((4, 8), tf.int32) * 2, "cls_positions": tf.zeros((4, 2), tf.int32)}
    sums = RankingObjective(2, 20.0).sums({"embeddings": tf.constant(vectors)}, batch)
    assert float(sums[ACCURACY]) == 3  # no answer is near the fourth question
    right = np.array([0, 1, 1, 2])
    questions = np.array([[1.0, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]])
    answers = np.concatenate([np.eye(3), np.tile([[0.6, 0.8, 0]], (11, 1))])
    assert recalls(questions, answers, right) == {"recall_at_1": 0.75, "recall_at_10": 0.75}
    assert recalls(questions * np.nan, answers, right) == {"recall_at_1": 0.0, "recall_at_10": 0.0}
    assert recalls(questions[:, :1] * np.nan, np.ones((3, 1)), right) == {"recall_at_1": 0.0, "recall_at_10": 0.0}


def test_a_model_for_which_all_texts_are_alike_finds_answers_by_chance() -> None:
    """As if equal answers were shuffled: the right one of 40 is the first in one of 40 orders."""
    alike = recalls(np.ones((4, 1)), np.ones((40, 1)), np.array([0, 7, 39, 7]))
    assert alike == {"recall_at_1": pytest.approx(1 / 40), "recall_at_10": pytest.approx(10 / 40)}
    # The cosines of one better answer, of the right one and of three that equal it, and of a worse one.
    answers = np.array([[1.0, 0], [0.6, 0.8], [0.6, 0.8], [0.6, 0.8], [0.6, 0.8], [0, 1]])
    assert recalls(np.array([[1.0, 0]]), answers, np.array([2])) == {"recall_at_1": 0.0, "recall_at_10": 1.0}
    assert recalls(np.array([[1.0, 0]]), answers[1:], np.array([2]))["recall_at_1"] == pytest.approx(1 / 4)


@NEEDS_PYTORCH
@pytest.mark.slow
def test_a_real_model_equals_pytorch(root: Path, tmp_path: Path) -> None:
    model = real_data("all-minilm-l6-v2")
    run_pytorch("tests.support.pytorch_embeddings", str(root), str(model))
    output = tmp_path / "result.npy"
    assert embed(["--checkpoint", str(model), "--file", str(root / "texts.txt"), "--output", str(output)]) == 0
    np.testing.assert_allclose(np.load(output), np.load(root / "real.npy"), atol=1e-5)
