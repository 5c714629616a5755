"""Named entities from files to entity F1: training, packs, export, and a single text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import BertConfig

from checkpoints.export.hf_folder import export
from checkpoints.pretrained.opening import open_pretrained
from tasks.classify import main as classify
from tests.support.command_errors import assert_refused
from tests.support.fine_tuning_runs import TAGGED_PIECES, run_folder, write_config, write_pieces, write_tagged
from tests.support.runs import evaluations, read_json, read_lines, run_command

pytestmark = pytest.mark.slow

PACKS = {"max_sequences_per_pack": 3}  # test_every_task.py trains single sentences
SETTINGS = {"num_epochs": 12, "do_test": True, "packing": PACKS}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("entities")
    write_pieces(root / "vocab.txt", TAGGED_PIECES)
    write_tagged(root)
    return root


def run(root: Path, name: str, **changes: object) -> Path:
    return run_folder("token_classification", write_config(root, name, **{**SETTINGS, **changes}))


@pytest.fixture(scope="module")
def trained(root: Path) -> Path:
    return run(root, "packed")


def test_a_run_scores_entities_and_writes_predictions(root: Path, trained: Path) -> None:
    scores = read_json(trained / "scores.json")
    assert set(scores) == {name + kind for name in ("f1", "precision", "recall") for kind in ("", "_test")}
    assert scores["f1"] > 0.9 and scores["f1_test"] > 0.9
    rows = (trained / "test_predictions.txt").read_text(encoding="utf-8").splitlines()
    test = (root / "test.txt").read_text(encoding="utf-8").splitlines()
    assert [" ".join(row.split()[:2]) for row in rows] == test
    description = read_json(trained / "dataset.json")
    assert description["entities"] == {"PER": 200, "LOC": 200} and description["words_cut"] == 0


def test_an_evaluation_without_packs_says_the_same_and_one_text_has_its_entities(
    root: Path, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = str(trained)
    again = run(root, "again", do_training=False, pretrained_ckpt_path=start, vocab_file=None, packing={})
    assert read_json(again / "scores.json") == read_json(trained / "scores.json")
    assert classify(["--checkpoint", start, "Anna vandam went to Paris and rome"]) == 0
    result = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [[kind, *words] for kind, _, *words in result] == [
        ["PER", "Anna", "vandam"], ["LOC", "Paris"], ["LOC", "rome"]
    ]  # fmt: skip
    assert classify(["--checkpoint", start, "one", "two"]) == 2
    assert "takes 1 text, not 2" in capsys.readouterr().err


def test_lists_of_words_are_tagged(root: Path, trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, output, start = root / "in.jsonl", root / "out.jsonl", ["--checkpoint", str(trained)]
    rows = [{"id": 7, "tokens": ["Anna", "vandam", "saw", "Paris"]}, {"id": 8, "tokens": []}]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert classify([*start, "--file", str(source), "--output", str(output)]) == 0
    assert read_lines(output) == [
        {**rows[0], "prediction": ["B-PER", "I-PER", "O", "B-LOC"]},
        {**rows[1], "prediction": []},
    ]
    (root / "one.jsonl").write_text('{"tokens": []}\n', encoding="utf-8")
    assert classify([*start, "--file", str(root / "one.jsonl"), "--output", str(root / "empty.jsonl")]) == 0
    assert read_lines(root / "empty.jsonl") == [{"tokens": [], "prediction": []}]
    with open(source, "a", encoding="utf-8") as file:
        file.write('{"id": 9, "tokens": ["Anna", 5]}\n')
    capsys.readouterr()
    refused = classify([*start, "--file", str(source), "--output", str(root / "none.jsonl")])
    assert_refused(refused, capsys.readouterr(), "line 3: tokens is")


def test_tags_without_a_prefix_are_scored_by_word(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = root / "plain"
    data.mkdir()
    for name in ("train.txt", "valid.txt", "test.txt"):
        lines = (root / name).read_text(encoding="utf-8").replace("B-", "").replace("I-", "").splitlines()
        counted = [f"{number} {line}" if line else "" for number, line in enumerate(lines)]
        (data / name).write_text("\n".join(counted), encoding="utf-8")
    other = [f"{line} X" if line else "" for line in (data / "test.txt").read_text(encoding="utf-8").splitlines()]
    (data / "test.txt").write_text("\n".join(other), encoding="utf-8")  # its last column has no tags
    settings = {"dataset_dir": str(data), "token_data": {"word_column": 2}, "evaluation": {"every": "epoch"}}
    trained = run(root, "words", **settings)
    scores = read_json(trained / "scores.json")
    assert set(scores) == {"macro_f1", "precision", "recall", "accuracy"}
    assert 0.9 < scores["macro_f1"] <= 1 >= scores["accuracy"] > 0.9
    tags = [line.split()[-1] for line in (data / "valid.txt").read_text(encoding="utf-8").splitlines() if line]
    outside = tags.count("O") / len(tags)  # the most frequent tag
    means = {"accuracy": outside, "macro_f1": 2 * outside / (1 + outside) / len(set(tags))}
    baseline = read_json(trained / "baseline.json")
    assert {name: baseline[name] for name in means} == pytest.approx(means)
    assert [set(scored) for _, scored in evaluations(trained)] == [set(scores)] * 12
    words, output = root / "words.txt", root / "words_tagged.txt"
    start = ["--checkpoint", str(trained)]
    words.write_text("1\tanna\n2\tsaw\n", encoding="utf-8")
    assert classify([*start, "--file", str(words), "--output", str(output)]) == 2  # the numbers would be tagged
    assert classify([*start, "--file", str(words), "--output", str(output), "--word-column", "2"]) == 0
    assert output.read_text(encoding="utf-8") == "1\tanna\tPER\n2\tsaw\tO\n"
    capsys.readouterr()
    assert classify([*start, "Anna vandam saw Paris"]) == 0
    result = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [[kind, word] for kind, _, word in result] == [["PER", "Anna"], ["PER", "vandam"], ["LOC", "Paris"]]
    (data / "valid.txt").write_text("1 anna NOUN\n", encoding="utf-8")
    refused = write_config(root, "refused", **{**SETTINGS, **settings})
    assert "has the tags NOUN, and none of the model's" in run_command("token_classification", refused, status=2).error


def test_a_file_of_words_gets_the_tags_of_the_evaluation(
    root: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "tagged.txt"
    start = ["--checkpoint", str(trained)]
    assert classify([*start, "--file", str(root / "test.txt"), "--output", str(output)]) == 0
    expected = (trained / "test_predictions.txt").read_text(encoding="utf-8")
    assert output.read_text(encoding="utf-8").rstrip() == expected.rstrip()

    words = [" ".join(line.split()[:1]) for line in expected.splitlines()]  # without tags
    tags = [" ".join(line.split()[2:]) for line in expected.splitlines()]
    bare, tabs = tmp_path / "bare.txt", tmp_path / "tabs.conll"
    bare.write_text("\r\n".join(["-DOCSTART-", "", *words, "", ""]), encoding="utf-8")
    assert classify([*start, "--file", str(bare), "--output", str(tabs)]) == 0
    wanted = ["-DOCSTART- O", "", *[f"{word} {tag}".strip() for word, tag in zip(words, tags)], ""]
    assert tabs.read_text(encoding="utf-8").rstrip() == "\n".join(wanted).rstrip()

    capsys.readouterr()
    broken, empty = tmp_path / "broken.txt", tmp_path / "empty.txt"
    broken.write_text("anna\nwent to\n")
    empty.write_text("\n\n")
    for source, more, named in (
        (broken, [], "line 2: has 2 columns, line 1 of the same sentence 1"),
        (empty, [], "contains no words"),
        (bare, ["--text", "word"], "is not a table"),
    ):
        assert classify([*start, "--file", str(source), "--output", str(tmp_path / "no.txt"), *more]) == 2
        assert named in capsys.readouterr().err
    assert not (tmp_path / "no.txt").exists()


def test_the_export_is_hugging_face_s_token_classifier(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = export(str(trained), tmp_path / "exported")
    assert outcome.head.model == "BertForTokenClassification"
    config = BertConfig.from_pretrained(str(tmp_path / "exported"))
    assert config.architectures == ["BertForTokenClassification"]
    assert config.id2label == {0: "O", 1: "B-LOC", 2: "B-PER", 3: "I-PER"}
    assert config.label2id == {name: number for number, name in config.id2label.items()}
    card = (tmp_path / "exported" / "README.md").read_text(encoding="utf-8")  # room: model_card
    assert "AutoModelForTokenClassification" in card  # room: model_card
    assert "pipeline_tag: token-classification" in card  # room: model_card
    assert set(open_pretrained(str(tmp_path / "exported"), "x").weights) >= {"classifier.weight", "classifier.bias"}
    text = "the clara was in oslo"
    outputs = []
    for origin in (trained, tmp_path / "exported"):
        assert classify(["--checkpoint", str(origin), "--max-seq-length", "16", text]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1] and "PER" in outputs[0]
