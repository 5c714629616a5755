"""Sentence embeddings from files to scores: packs, similarities, export, files of texts, and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoints.export.hf_folder import export
from checkpoints.pretrained.opening import open_pretrained
from checkpoints.pretrained.sentence_transformers import embedding_settings
from tasks.classify import main as classify
from tasks.embed import main as embed
from tests.support.command_errors import assert_refused
from tests.support.fine_tuning_runs import PIECES, run_folder, write_config, write_pieces, write_texts_to_embed
from tests.support.runs import SMALL, metrics, read_json, run_command
from utilities.tables import read_table

pytestmark = pytest.mark.slow

TRIPLES = {"train_file": "texts.csv", "text": ["film", "right", "wrong"]}
SCORED = {"train_file": "texts.csv", "text": ["right", "wrong"], "label": "score", "pooling": "cls"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("embeddings")
    write_pieces(root / "vocab.txt", PIECES)
    write_texts_to_embed(root)
    return root


def run(root: Path, name: str, **changes: Any) -> Path:
    return run_folder("sentence_embedding", write_config(root, name, **{"max_seq_length": 32, **changes}))


@pytest.fixture(scope="module")
def scored(root: Path) -> Path:
    return run(root, "scored", embedding=SCORED, num_epochs=10)


def test_cosines_follow_the_scores(root: Path, scored: Path) -> None:
    scores = read_json(scored / "scores.json")
    assert set(scores) == {"pearson", "spearman"} and scores["pearson"] > 0.7
    settings = {"do_training": False, "pretrained_ckpt_path": str(scored), "vocab_file": None}
    again = run(root, "again", embedding=SCORED, evaluation_batch_size=5, **settings)
    assert read_json(again / "scores.json") == pytest.approx(scores, abs=1e-5)


def test_triples_in_packs_in_mixed_precision(root: Path) -> None:
    execution = {"xla": False, "platform": "software", "device": "cpu", "precision": "mixed_bfloat16"}
    packs = {"max_seq_length": 64, "packing": {"max_sequences_per_pack": 2}}
    bert = {**SMALL, "vocab_size": 40, "max_position_embeddings": 64}
    evaluation = {"every": "epoch"}
    settings = {"bert_config": bert, "execution": execution, "evaluation": evaluation, **packs}
    packed = run(root, "packed", embedding=TRIPLES, num_epochs=8, **settings)
    periods = [line["metrics"] for line in metrics(packed) if "metrics" in line]
    assert periods[-1]["loss"] < periods[0]["loss"]
    assert all(1 <= period["sequences_per_pack"] <= 2 for period in periods)  # of samples, not of texts
    assert read_json(packed / "scores.json")["recall_at_10"] > 0.5  # 10 of 48 answers by chance
    assert read_json(packed / "dataset.json")["records"] == 216


def test_files_are_embedded_alike_by_the_run_and_by_its_export(
    root: Path, scored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(str(scored), tmp_path / "exported").head.model == "BertModel"
    card = (tmp_path / "exported" / "README.md").read_text(encoding="utf-8")  # room: model_card
    assert "library_name: sentence-transformers" in card  # room: model_card
    assert "pipeline_tag: sentence-similarity" in card  # room: model_card
    assert embedding_settings(open_pretrained(str(tmp_path / "exported"), "x")) == ("cls", False, 32)
    assert read_json(tmp_path / "exported" / "1_Pooling" / "config.json") == {
        "word_embedding_dimension": 32, "pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True
    }  # fmt: skip
    table, texts = root / "texts.csv", tmp_path / "texts.txt"
    rows = [line.row["film"] for line in read_table(table)]
    texts.write_text("\r\n".join(rows), encoding="utf-8")
    sources = [(scored, table, ["--text", "film"]), (tmp_path / "exported", texts, [])]
    result = []
    for number, (checkpoint, source, more) in enumerate(sources):
        output = tmp_path / f"{number}.npy"
        assert embed(["--checkpoint", str(checkpoint), "--file", str(source), "--output", str(output), *more]) == 0
        result.append(np.load(output))
    assert result[0].shape == (240, 32) and result[0].dtype == np.float32
    np.testing.assert_allclose(result[0], result[1], atol=1e-5)
    assert classify(["--checkpoint", str(scored), "a text"]) == 2
    assert "was trained for sentence_embedding" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name, content, arguments, message",
    [
        ("a.csv", "film\nx\n", [], "a.csv: has no column text; name one of its columns, film (--text)"),
        ("a.jsonl", '{"text": "x"}\n{"text": 5}\n', [], "a.jsonl: line 2: text is 5, not a text"),
        ("a.txt", "x\n\ny\n", [], "a.txt: line 2: has no text"),
        ("a.txt", "", [], "a.txt: is empty"),
        ("a.txt", "x\n", ["--text", "film"], "--text: "),
        ("a.txt", "x\n", ["--output", "out.txt"], "must end with .npy"),
    ],
)
def test_files_that_cannot_be_embedded_are_refused(
    scored: Path, name: str, content: str, arguments: list[str], message: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(content, encoding="utf-8")
    given = ["--checkpoint", str(scored), "--file", name, "--output", "out.npy", *arguments]
    assert_refused(embed(given), capsys.readouterr(), message)
    assert not (tmp_path / "out.npy").exists()


@pytest.mark.parametrize(
    "section, changes, message",
    [
        ({}, {"global_batch": {"micro_batch_size": 1}}, "set micro_batch_size to 32, say"),
        ({"label": "score"}, {}, "only pairs have a similarity"),
        ({}, {"max_seq_length": 8}, "set max_seq_length to 9 or more"),
        ({"text": ["film", "right"], "label": "film"}, {}, "line 2: film is 'film "),
        ({"validation_fraction": 0.0}, {}, "there is nothing to score"),
    ],
)
def test_wrong_configs_are_refused(root: Path, section: Any, changes: Any, message: str) -> None:
    columns = TRIPLES["text"] if "max_seq_length" in changes or "label" in section else TRIPLES["text"][:2]
    embedding = {**TRIPLES, "text": columns, **section}
    config = write_config(root, "wrong", **{"num_epochs": 1, "max_seq_length": 32, "embedding": embedding, **changes})
    assert message in run_command("sentence_embedding", config, status=2).error
