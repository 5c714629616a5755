"""``tasks.classify --file`` predicts what Hugging Face's PyTorch models do, and what the command prints for a text."""

from __future__ import annotations

import json
import shutil
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers.models.bert.tokenization_bert import BasicTokenizer

from data_utils.token_classification import find_entities
from keras_extensions.backend import tf
from model.losses import LOSS, MultiLabelObjective
from tasks import file_predictions, load
from tasks.answering import Model
from tasks.answers import Answer
from tasks.classify import main as classify
from tasks.masked_words import Filling
from tests.support.command_errors import assert_refused
from tests.support.fine_tuning_runs import FILLING, pytorch_predictions
from tests.support.html_pages import HOSTILE, Page
from tests.support.pytorch_process import NEEDS_PYTORCH
from tests.support.runs import read_csv, read_json, write_csv, write_json
from training.prediction import PredictorByLength
from utilities.errors import UserError

pytestmark = [pytest.mark.slow, NEEDS_PYTORCH]

CLASSES = {"single": ["bad", "good", "so, so"], "pair": ["no", "yes"]}
TAGS = ["O", "B-PER", "I-PER", "B-LOC"]
LABELS = ["dark", "funny", "rare"]
SAMPLES = 11


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("predictions")
    rows = [[n, *pair, f'a, "b"\n{n}'] for n, pair in enumerate(pytorch_predictions(root, SAMPLES))]
    write_csv(root / "texts.csv", ["id", "first", "second", "remark"], rows)
    return root


@pytest.fixture(autouse=True)
def several_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_predictions, "ROWS", 4)


def expected(root: Path, name: str) -> Any:
    return read_json(root / "expected.json")[name]


def command(root: Path, name: str, columns: list[str], source: Path, output: Path) -> list[str]:
    checkpoint = ["--checkpoint", str(root / name), "--max-seq-length", "32"]
    return [*checkpoint, "--file", str(source), "--text", *columns, "--output", str(output)]


@pytest.mark.parametrize("name, columns", [("single", ["first"]), ("pair", ["first", "second"])])
def test_classes_and_their_probabilities(
    root: Path, name: str, columns: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out.csv"
    assert classify(command(root, name, columns, root / "texts.csv", output)) == 0
    source, result, wanted = read_csv(root / "texts.csv"), read_csv(output), np.array(expected(root, name))
    assert [{key: row[key] for key in source[0]} for row in result] == source
    assert [row["prediction"] for row in result] == [CLASSES[name][n] for n in wanted.argmax(axis=1)]
    assert [float(row["probability"]) for row in result] == pytest.approx(wanted.max(axis=1).tolist(), abs=1e-5)
    for row, shares in zip(result, wanted):
        assert [float(row[f"probability_{each}"]) for each in CLASSES[name]] == pytest.approx(shares.tolist(), abs=1e-5)
    capsys.readouterr()
    texts = [result[0][column] for column in columns]
    assert classify(["--checkpoint", str(root / name), "--max-seq-length", "32", *texts]) == 0
    line = capsys.readouterr().out.splitlines()[0]
    assert line.startswith(result[0]["prediction"]) and f"{float(result[0]['probability']):.2%}" in line


def test_any_number_of_labels(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "out.csv"
    assert classify(command(root, "labels", ["first"], root / "texts.csv", output)) == 0
    result, wanted = read_csv(output), np.array(expected(root, "labels"))
    for row, shares in zip(result, wanted):
        assert row["prediction"] == ";".join(name for name, share in zip(LABELS, shares) if share > 0.5)
        assert [float(row[f"probability_{name}"]) for name in LABELS] == pytest.approx(shares.tolist(), abs=1e-5)
    assert len({row["prediction"] for row in result}) > 1  # otherwise the test would say little
    capsys.readouterr()
    assert classify(["--checkpoint", str(root / "labels"), "--max-seq-length", "32", result[0]["first"]]) == 0
    shares = {line.split()[0]: line.split()[1] for line in capsys.readouterr().out.splitlines()}
    assert shares == {name: f"{share:.2%}" for name, share in zip(LABELS, wanted[0])}


def test_the_loss_of_labels_is_that_of_hugging_face(root: Path) -> None:
    reference = expected(root, "labels_loss")
    labels = np.array(reference["labels"], np.int32)
    packs = {  # two slots a row, the last one empty
        "labels": np.concatenate([labels.ravel(), np.ones(len(LABELS), np.int32)]).reshape(-1, 2 * len(LABELS)),
        "sequence_weights": (np.arange(SAMPLES + 1) < SAMPLES).astype(np.float32).reshape(-1, 2),
        "input_mask": np.ones((SAMPLES // 2 + 1, 4), np.int32),
    }
    logits = np.array(reference["logits"], np.float32)
    logits_of_packs = np.concatenate([logits, np.full((1, len(LABELS)), 9, np.float32)]).reshape(-1, 2, len(LABELS))
    for batch, scores in (({"labels": labels}, logits), (packs, logits_of_packs)):
        data, variable = {name: tf.constant(values) for name, values in batch.items()}, tf.Variable(scores)
        with tf.GradientTape() as tape:
            objective = MultiLabelObjective()
            loss = objective.sums({"logits": variable}, data)[LOSS] / objective.counts(data)[LOSS]
        gradient = tape.gradient(loss, variable).numpy().reshape(-1, len(LABELS))
        assert float(loss) == pytest.approx(reference["loss"], rel=1e-6)
        np.testing.assert_allclose(gradient[:SAMPLES], reference["gradient"], atol=1e-7)
        assert not gradient[SAMPLES:].any()


def test_values_from_json_lines(root: Path, tmp_path: Path) -> None:
    texts = read_json(root / "texts.json")
    rows = [{"text": first, "more": [n]} for n, (first, _) in enumerate(texts)]
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert classify(command(root, "number", ["text"], source, output)) == 0
    result = [json.loads(line) for line in output.read_text().splitlines()]
    assert [{"text": row["text"], "more": row["more"]} for row in result] == rows
    assert [row["prediction"] for row in result] == pytest.approx([v for (v,) in expected(root, "number")], abs=2e-5)


def test_entities(root: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    assert classify(command(root, "entities", ["first"], root / "texts.csv", output)) == 0
    count = 0
    for line, tokens in zip(output.read_text().splitlines(), expected(root, "entities")):
        row, shares = json.loads(line), np.array(tokens)[1:-1]  # without [CLS] and [SEP]; each word is one piece
        words = row["first"].split()
        result = find_entities([TAGS[number] for number in shares.argmax(axis=1)])
        assert [(one["kind"], one["text"]) for one in row["entities"]] == [
            (kind, " ".join(words[first : last + 1])) for kind, first, last in result
        ]
        certain = [float(shares.max(axis=1)[first : last + 1].min()) for _, first, last in result]
        assert [one["probability"] for one in row["entities"]] == pytest.approx(certain, abs=1e-5)
        count += len(result)
    assert count > SAMPLES  # otherwise the test would say little


def test_a_loaded_model_answers_as_pytorch_does(root: Path) -> None:
    texts = read_json(root / "texts.json")
    first, pairs = [text for text, _ in texts], [tuple(pair) for pair in texts]
    for name, given, labels in (
        ("single", first, CLASSES["single"]), ("pair", pairs, CLASSES["pair"]), ("labels", first, LABELS)
    ):  # fmt: skip
        model, wanted = load(str(root / name), max_seq_length=32), expected(root, name)
        answers = model(given)
        for answer, shares in zip(answers, wanted, strict=True):
            assert [choice.label for choice in answer] == [labels[n] for n in np.argsort(shares)[::-1]]
            assert [choice.probability for choice in answer] == pytest.approx(sorted(shares)[::-1], abs=1e-5)
        assert model(given[3])[0].label == answers[3][0].label
    numbers = load(str(root / "number"))(first)
    assert numbers == pytest.approx([value for (value,) in expected(root, "number")], abs=1e-5)
    entities = load(str(root / "entities"))(first)
    for answer, tokens in zip(entities, expected(root, "entities"), strict=True):
        tags = [TAGS[number] for number in np.argmax(tokens, axis=1)[1:-1]]
        assert [entity.kind for entity in answer] == [kind for kind, _, _ in find_entities(tags)]


def test_entities_are_parts_of_the_text(root: Path) -> None:
    model, counts = load(str(root / "entities")), Counter[str]()
    for text in ("U.S.A., O'Neill's  New  York 纽约 (Toyota, 豊田).", "हिन्दी  में cafe\u0301 शहर", "a  b (c)  d"):
        plain = unicodedata.normalize("NFC", text)
        words = BasicTokenizer(do_lower_case=False, strip_accents=False).tokenize(plain)
        for entity in model(text):
            assert entity.text == text[entity.begin : entity.end]
            inside = BasicTokenizer(do_lower_case=False, strip_accents=False).tokenize(entity.text)
            assert "|".join(inside) in "|".join(words)  # whole words
            counts["one" if len(inside) == 1 else "more"] += 1
    assert counts["one"] and counts["more"]
    assert model("\u200b") == [] and model(["\u200b", "a"])[0] == []  # no words


def test_scores_that_are_no_numbers_are_refused(root: Path) -> None:
    """Their largest is the first, so that they would be answers."""
    for name in ("single", "entities", "number"):
        answering = load(str(root / name)).answering
        classes = {"single": 3, "number": 1}.get(name, len(TAGS))

        def broken(inputs: dict[str, tf.Tensor], name: str = name, classes: int = classes) -> dict[str, tf.Tensor]:
            shape = tf.shape(inputs["input_ids"])
            return {"logits": tf.fill((shape[0], *([shape[1]] if name == "entities" else []), classes), np.nan)}

        with pytest.raises(UserError, match="not finite numbers; its weights are damaged"):
            Model(answering, PredictorByLength(broken))("w1")


def test_bfloat16_has_the_probabilities_to_some_digits(root: Path) -> None:
    first = [text for text, _ in read_json(root / "texts.json")]
    answers = load(str(root / "single"), max_seq_length=32, precision="bfloat16")(first)
    found = [{choice.label: choice.probability for choice in answer} for answer in answers]
    shares, wanted = np.array([[each[name] for name in CLASSES["single"]] for each in found]), expected(root, "single")
    assert shares.sum(axis=1) == pytest.approx(1, abs=1e-5)
    assert 1e-5 < np.abs(shares - wanted).max() < 0.02
    with pytest.raises(UserError, match="precision is float16; set it to one of float32, bfloat16"):
        load(str(root / "single"), precision="float16")


def test_answers_show_themselves_as_tables(root: Path) -> None:
    model = load(str(root / "single"))
    cells = Page(model([FILLING[0], FILLING[1]])._repr_html_()).texts
    for first in (0, len(cells) // 2):
        table = np.array(cells[first : first + len(cells) // 2]).reshape(-1, 2)
        assert table[0].tolist() == ["label", "probability"] and {*table[1:, 0]} == {*CLASSES["single"]}
        assert table[1:, 1].astype(float).sum() == pytest.approx(1, abs=2e-4)
    assert Page(Answer([Filling(1, HOSTILE, 0.5)])._repr_html_()).texts[-3:] == ["1", HOSTILE, "0.5000"]


def test_a_loaded_model_refuses_three_texts(root: Path) -> None:
    with pytest.raises(UserError, match="1 or 2 texts, not 3"):
        load(str(root / "single"))(("a", "b", "c"))


def test_a_model_that_does_not_say_its_task_is_loaded_by_name(root: Path, tmp_path: Path) -> None:
    unknown = tmp_path / "unknown"
    shutil.copytree(root / "single", unknown)
    config = read_json(unknown / "config.json")
    write_json(unknown / "config.json", {**config, "architectures": ["BertModel"]})
    with pytest.raises(UserError, match=r"^load: .* does not say what it was trained for; name one of"):
        load(str(unknown))
    text = FILLING[0]
    assert load(str(unknown), "classification")(text) == load(str(root / "single"))(text)
    assert load(str(unknown), "sentence_embedding")([text] * 2).shape == (2, 32)


def test_what_cannot_be_done_is_one_line(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = root / "texts.csv"
    empty, blank, taken = (tmp_path / name for name in ("empty.csv", "blank.csv", "taken.csv"))
    empty.write_text("first\n")
    blank.write_text("first,n\n,1\n ,2\n")
    taken.write_text("first,prediction\na,b\n")
    cases = [
        (["first"], table, taken, "--output"),
        (["first"], table, tmp_path / "out.xlsx", "--output"),
        (["first"], table, tmp_path / "nowhere" / "out.csv", "--output"),
        (["third"], table, tmp_path / "out.csv", "third"),
        (["first"], table, tmp_path / "out.tsv", "line 2"),  # line breaks
        (["first"], empty, tmp_path / "out.csv", "empty.csv"),
        (["first"], blank, tmp_path / "out.csv", "lines 2, 3: no text"),
        (["first"], taken, tmp_path / "out.csv", "prediction"),
    ]
    for columns, source, output, named in cases:
        assert classify(command(root, "single", columns, source, output)) == 2
        error = capsys.readouterr().err.strip().splitlines()[-1]
        assert error.startswith("error: ") and named in error
        assert not (tmp_path / output.name).exists() or output == taken
    checkpoint = ["--checkpoint", str(root / "single")]
    for arguments in ([], ["a", "--output", "b.csv"], ["--file", str(table)], ["a", "--file", str(table)]):
        assert classify([*checkpoint, *arguments]) == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_rows_without_a_text_have_an_empty_prediction(
    suffix: str, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [text for text, _ in read_json(root / "texts.json")]
    given = ["", texts[0], "  ", texts[1], texts[2], None]
    source, output = tmp_path / "in.jsonl", tmp_path / f"out.{suffix}"
    source.write_text("".join(json.dumps({"first": text, "n": n}) + "\n" for n, text in enumerate(given)))
    monkeypatch.setattr(file_predictions, "ROWS", 3)
    assert classify(command(root, "single", ["first"], source, output)) == 0
    assert f"6 rows: {output}; 3 without a text have an empty prediction (lines 1, 3, 6)" in capsys.readouterr().out
    rows = read_csv(output) if suffix == "csv" else [json.loads(line) for line in output.read_text().splitlines()]
    wanted = iter(expected(root, "single"))
    for row, text in zip(rows, given, strict=True):
        shares = [row[f"probability_{name}"] for name in CLASSES["single"]]
        if text is None or not text.strip():
            assert {row["prediction"], row["probability"], *shares} == {"" if suffix == "csv" else None}
        else:
            assert [float(share) for share in shares] == pytest.approx(next(wanted), abs=1e-5)


def test_random_predictions_are_refused(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    without_head = tmp_path / "answers"
    shutil.copytree(root / "single", without_head)
    config = read_json(without_head / "config.json")
    write_json(without_head / "config.json", {**config, "architectures": ["BertForQuestionAnswering"]})
    cases = [
        (without_head, ["w1", "w2 w3"], "lacks qa_outputs.bias and 1 more, so its scores would be random"),
        (root / "single", ["--glue-task", "sst2", "w1"], "lacks classifier.bias and 1 more"),  # of 3 and of 2 classes
    ]
    for checkpoint, arguments, message in cases:
        assert_refused(classify(["--checkpoint", str(checkpoint), *arguments]), capsys.readouterr(), message)
