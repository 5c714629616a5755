"""Own files as the config describes them: formats, the held-out part, classes, predictions, and errors."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_utils.classification.reading import Examples, read_split, report_copies
from data_utils.classification.scoring import write_submission
from data_utils.classification.user_task import user_task
from planning.overview import plan_lines, plan_warnings
from settings.data_sections import ClassificationData
from settings.loading import LoadedConfig
from tasks.user_data import read_classes
from tests.support.config_files import FINE_TUNING, load_config, write
from utilities.errors import UserError

PARTS = ["plain", '"', '""', ",", "\n", "\r\n", "\t", " ", "é", "\u2028", "\\", "'", ";", "中", "\ufeff"]


def read(folder: Path, split: str = "train", **section: Any) -> Examples:
    task = user_task(**ClassificationData(**{"validation_fraction": 0, **section}).without_loss())
    examples = read_split(task, {"train": task.train, "validation": task.validation[0]}[split], folder)
    assert examples is not None
    return examples


def load(folder: Path, section: dict[str, Any], *flags: str, task: str = "classification") -> LoadedConfig:
    config = {**FINE_TUNING, "dataset_dir": str(folder), "classification_data": section}
    return load_config(task, ["--config", str(write(folder, config)), *flags], read_classes)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("kind", ["csv", "jsonl", "tsv"])
def test_texts_are_read_as_written(kind: str, encoding: str, end: str, tmp_path: Path) -> None:
    chance = random.Random(0)
    odd = PARTS if kind != "tsv" else [part for part in PARTS if part not in ("\n", "\r\n", "\t")]
    rows = [[f"a{''.join(chance.choices(odd, k=6))}b" for _ in range(2)] + [chance.choice("xyz")] for _ in range(300)]
    path, header = tmp_path / f"train.{kind}", ["one", "two", "kind"]
    with open(path, "w", encoding=encoding, newline="") as file:
        if kind == "csv":
            csv.writer(file, lineterminator=end).writerows([header, *rows])
        elif kind == "tsv":
            csv.writer(file, "excel-tab", lineterminator=end, quoting=csv.QUOTE_NONE, quotechar=None).writerows(
                [header, *rows]
            )
        else:
            file.writelines(json.dumps(dict(zip(header, row)), ensure_ascii=False) + end for row in rows)
    result = read(tmp_path, train_file=path.name, text=["two", "one"], label="kind", classes=["z", "y", "x"])
    assert result.texts == [(row[1], row[0]) for row in rows]
    assert ["zyx"[number] for number in result.labels] == [row[2] for row in rows]


@pytest.mark.parametrize("regression", [False, True])
def test_the_held_out_part_is_a_part_of_each_class(regression: bool, tmp_path: Path) -> None:
    rows = [{"text": f"text {n}", "label": n % 10 // 9, "id": f"0{n}"} for n in range(100)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    section = {"train_file": "train.jsonl", "validation_fraction": 0.35}
    section.update({"regression": True} if regression else {"classes": ["0", "1"]})
    train, held = (read(tmp_path, split, **section) for split in ("train", "validation"))
    assert sorted(train.texts + held.texts) == sorted((row["text"],) for row in rows)
    assert held.ids == [f"0{text.split()[1]}" for (text,) in held.texts]
    assert len(held.texts) == (35 if regression else 31 + 3)
    if not regression:
        assert np.bincount(held.labels).tolist() == [31, 3]
    again, other = (read(tmp_path, "validation", **section, validation_seed=seed) for seed in (0, 1))
    assert again.texts == held.texts != other.texts


def test_classes_are_derived_from_the_file(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,label\na, mild \nb,hot\nc,mild\n")
    loaded = load(tmp_path, {"train_file": "train.csv"})
    assert loaded.config.classification_data.classes == ["hot", "mild"]
    assert loaded.origins["classification_data.classes"] == "derived" and loaded.config.glue_task is None
    (tmp_path / "train.jsonl").write_text("".join(f'{{"text": "a", "label": {n}}}\n' for n in (10, 9, 100, 9)))
    loaded = load(tmp_path, {"train_file": "train.jsonl"})
    assert loaded.config.classification_data.classes == ["9", "10", "100"]
    assert loaded.config.number_of_labels == 3
    assert load(tmp_path, {"train_file": "train.csv", "regression": True}).config.number_of_labels == 1
    assert any("glue_head" in line and "2,307" in line for line in plan_lines(loaded))  # 3 × (768 + 1)
    missing = plan_warnings(load(tmp_path, {"train_file": "no.csv"}))[-1]
    assert f"{tmp_path / 'no.csv'} does not exist" in missing and "--classification-data.train-file" in missing


def test_any_number_of_labels(tmp_path: Path) -> None:
    sets = [["sad", "dark"], ["sad"], [], ["dark", "funny"], ["funny"]] * 8 + [["rare", "sad"]]
    lines = [f'text {n},"{"; ".join(each)}"\n' for n, each in enumerate(sets)]
    (tmp_path / "train.csv").write_text("".join(["text,label\n", *lines]))
    rows = [{"text": f"text {n}", "label": each if n % 2 else ";".join(each)} for n, each in enumerate(sets)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name in ("train.csv", "train.jsonl"):
        section = {"train_file": name, "label_separator": ";"}
        loaded = load(tmp_path, section)
        classes = loaded.config.classification_data.classes
        assert classes == ["dark", "funny", "rare", "sad"] and loaded.config.number_of_labels == 4
        result = read(tmp_path, **section, classes=classes)
        assert [[classes[n] for n in np.flatnonzero(row)] for row in result.labels] == [sorted(each) for each in sets]
        parts = [
            read(tmp_path, split, **section, classes=classes, validation_fraction=0.25)
            for split in ("train", "validation")
        ]
        assert sorted(parts[0].texts + parts[1].texts) == sorted(result.texts)
        assert len(parts[1].texts) == 10 and parts[0].labels.any(axis=0).all()


VECTORS = [[1, 0, 0], [0, 0, 0], [0, 1, 1], [1, 1, 1], [1, 0, 1]] * 4
WRITTEN = {  # a vector of 0 and 1, as JSON, Python, NumPy and pandas write it
    "integers": lambda row: row,
    "truth values": lambda row: [bool(each) for each in row],
    "fractions": lambda row: [float(each) for each in row],
    "list as text": str,
    "NumPy's text": lambda row: str(np.array(row)),
    "NumPy's text of fractions": lambda row: str(np.array(row, float)),
}


@pytest.mark.parametrize("form", WRITTEN)
@pytest.mark.parametrize("separator", [None, ";"])
def test_in_a_vector_of_0_and_1_the_place_is_the_label(form: str, separator: str | None, tmp_path: Path) -> None:
    rows = [{"text": f"text {n}", "label": WRITTEN[form](row)} for n, row in enumerate(VECTORS)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for given, names in ((None, ["LABEL_0", "LABEL_1", "LABEL_2"]), (["sad", "odd", "fun"], ["sad", "odd", "fun"])):
        section = {"train_file": "train.jsonl", "label_separator": separator, "classes": given}
        loaded = load(tmp_path, section).config.classification_data
        assert (loaded.classes, loaded.label_separator) == (names, ";")
        assert read(tmp_path, **loaded.model_dump(exclude={"validation_fraction"})).labels.tolist() == VECTORS


def test_each_label_may_have_a_column_of_0_and_1(tmp_path: Path) -> None:
    lines = [",".join(map(str, (f"text {n}", *row))) for n, row in enumerate(VECTORS)]
    (tmp_path / "train.csv").write_text("\n".join(["text,sad,odd,fun", *lines]))
    flag = ["--classification-data.label", "fun", "sad", "odd"]
    loaded = load(tmp_path, {"train_file": "train.csv"}, *flag)
    own = loaded.config.classification_data
    assert (own.label, own.classes, own.label_separator) == (["fun", "sad", "odd"],) * 2 + (";",)
    assert loaded.config.number_of_labels == 3 and loaded.origins["classification_data.classes"] == "derived"
    result = read(tmp_path, **own.model_dump(exclude={"validation_fraction"}))
    assert result.labels.tolist() == [[row[2], row[0], row[1]] for row in VECTORS]
    write_submission(tmp_path / "out.csv", user_task(**own.without_loss()), ["a", "b"], result.labels[2:4])
    assert (tmp_path / "out.csv").read_text() == "id,fun,sad,odd\na,1,0,1\nb,1,1,1\n"
    ordered = load(tmp_path, {"train_file": "train.csv", "classes": ["odd", "fun", "sad"]}, *flag).config
    result = read(tmp_path, **ordered.classification_data.model_dump(exclude={"validation_fraction"}))
    assert result.labels.tolist() == [[row[1], row[2], row[0]] for row in VECTORS]
    one = load(tmp_path, {"train_file": "train.csv"}, *flag[:2]).config.classification_data
    assert (one.label, one.classes, one.label_separator) == ("fun", ["0", "1"], None)
    for more, message in (
        ({"regression": True}, "a number has one column"),
        ({"classes": ["sad", "odd"]}, "each column is a label"),
    ):
        with pytest.raises(UserError, match=message):
            load(tmp_path, {"train_file": "train.csv", **more}, *flag)
    (tmp_path / "train.csv").write_text("text,sad,odd,fun\na,1,0,2\n")
    with pytest.raises(UserError, match=r"line 2: fun is '2', not 0 or 1.*name another column"):
        load(tmp_path, {"train_file": "train.csv"}, *flag)  # also for a plan
    with pytest.raises(UserError, match=r"line 2: fun is '2', not 0 or 1"):
        read(tmp_path, **own.model_dump(exclude={"validation_fraction"}))


def test_digits_may_be_names_of_labels(tmp_path: Path) -> None:
    """Lists of one or more names, none twice, are no vectors."""
    rows = [{"text": f"text {n}", "label": each} for n, each in enumerate([["1"], ["0", "1"], ["0"]])]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = load(tmp_path, {"train_file": "train.jsonl"}).config.classification_data
    assert own.classes == ["0", "1"]
    result = read(tmp_path, **own.model_dump(exclude={"validation_fraction"}))
    assert result.labels.tolist() == [[0, 1], [1, 1], [1, 0]]


def test_vectors_of_different_lengths_are_refused(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"text": "a", "label": [0, 0]}\n{"text": "b", "label": [0, 1, 0]}\n')
    with pytest.raises(UserError, match=r"line 2: label has 3 values of 0 and 1, and 2 on line 1; give each row one"):
        load(tmp_path, {"train_file": "train.jsonl"})
    with pytest.raises(UserError, match=r"line 2: label has 3 values of 0 and 1, not 2, one a label"):
        read(tmp_path, train_file="train.jsonl", label_separator=";", classes=["x", "y"])


def test_predictions_of_labels_are_joined(tmp_path: Path) -> None:
    task = user_task(**ClassificationData(label_separator=" | ", classes=["a", "b", "c"]).without_loss())
    write_submission(tmp_path / "out.csv", task, [7, 8, 9], np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0]]))
    assert (tmp_path / "out.csv").read_text() == "id,label\n7,a | c\n8,\n9,b\n"


CSV = {"train_file": "train.csv"}
ROWS = "text,label\na,x\na,y\n"


@pytest.mark.parametrize(
    ("content", "section", "flags", "message"),
    [
        (ROWS, CSV, ["--glue-task", "rte"], r"one task; give --glue-task none.*--classification-data.train-file"),
        (ROWS, {}, [], r"classification_data.train_file = null.*set train_file"),
        (ROWS, {**CSV, "validation_fraction": 0}, [], r"nothing to score.*--classification-data.validation-file"),
        (ROWS, CSV, ["--do-test"], r"classification_data.test_file.*nothing to predict"),
        (ROWS, {**CSV, "classes": ["a", "b", "a"]}, [], r"two classes or more, all different"),
        (ROWS, {**CSV, "label": "text"}, [], r'classes = \["a"\] \(derived\).*set label to the column'),
        (ROWS, {**CSV, "classes": ["a", "b"], "regression": True}, [], r"a number has no classes"),
        (ROWS, {**CSV, "class_weights": "balanced", "regression": True}, [], r"samples of one class each"),
        (ROWS, {**CSV, "text": ["a", "b", "c"]}, [], r"expected a list of one or two texts"),
        (ROWS, {**CSV, "label": "mood"}, [], r"train.csv: has no column mood; name one of its columns, text, label"),
        (ROWS, {**CSV, "label": "mood"}, ["--do-validation", "false"], r"train.csv: has no column mood; name one of"),
        (ROWS, {**CSV, "text": ["text", "more"]}, [], "has no column more.*--classification-data.text"),
        ("text,label\n", CSV, [], "train.csv: has no rows, at most a header; add rows"),
        (",".join(f"c{number}" for number in range(99)) + "\n" + "," * 98 + "\n", CSV, [], "c0, c1, .*c9, … "),
    ],
)
def test_broken_sections(content: str, section: dict[str, Any], flags: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text(content)
    with pytest.raises(UserError, match=message):
        load(tmp_path, section, *flags)
    if section == CSV:
        with pytest.raises(UserError, match="squad has no such data"):
            load(tmp_path, section, task="squad")


def test_a_whole_config_of_numbers_names_the_defaults_of_classes(tmp_path: Path) -> None:
    """As the configs do that a search or a run writes."""
    (tmp_path / "train.csv").write_text("text,label\na,1\nb,2\n")
    load(tmp_path, {**CSV, "regression": True, "class_weights": "equal", "label_smoothing": 0.0})


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b'text,label\n"a\nb",x\nc,z\n', r"a.csv: line 4: label is 'z', not one of x, y; correct it there"),
        ("a.csv", b"words,label\na,x\n", r"line 2: text is missing \(the columns are words, label\).*data.text"),
        ("a.csv", b"text,label\na,x\nb\n", r"line 3: has 1 columns, not the 2 of text, label"),
        ("a.csv", b'text,label\na,x\n"b\nc,y\n', r"line 3: is not CSV \(unexpected end of data\); put a text"),
        ("a.csv", b"text,label\na,x\nb,x\n", r"label: no row to train on has the class y; add such rows"),
        ("a.csv", b"text,text,label\na,b,x\n", r"a.csv: has the column 'text' twice; give each column a name"),
        ("a.csv", "text,label\na,x\n".encode("utf-16-le"), r"line 1: has a NUL character, as UTF-16 does; save it"),
        ("a.csv", b"", r"is empty"),
        ("a.csv", b"text,label\n", r"contains no samples"),
        ("a.txt", b"text,label\n", r"must end with .csv, .tsv or .jsonl"),
        ("a.jsonl", b'{"text": "a", "label": ["x"]}\n', r"line 1: label is \['x'\], not one value"),
        ("a.jsonl", b'{"text": "a", "text": "b", "label": "x"}\n', r'line 1: .*key "text" appears twice.*; write'),
        ("a.jsonl", b'[\n{"text": "a", "label": "x"},\n3]\n', r"line 3: is 3, not an object {…}; write one"),
        ("a.jsonl", b'[\n{"text": "a"}\n', r"line 1: is not JSON.*; write one object {…} on each line"),
        ("a.jsonl", b'{"text": 3, "label": "x"}\n', r"line 1: text is 3, not a text"),
    ],
)
def test_broken_files(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        read(tmp_path, train_file=name, classes=["x", "y"])
    assert "\n" not in str(caught.value)


def test_a_column_of_a_label_that_no_row_has_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,x,y\na,1,0\nb,0,0\n")
    message = r"a\.csv: y: no row to train on has the class y; add such rows, or take it out of .*data\.label$"
    with pytest.raises(UserError, match=message):
        read(tmp_path, train_file="a.csv", label=["x", "y"], classes=["x", "y"], label_separator=";")


def test_all_rows_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    lines = ["text,label", "a,x", ",x", "b,z", *["c,x"] * 2, *[" ,y"] * 6]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    message = r"line 3: text is empty, and lines 4, 7, 8, 9, 10, … \(7 in all\) cannot be used either; correct it"
    with pytest.raises(UserError, match=message):
        read(tmp_path, train_file="a.csv", classes=["x", "y"])


def test_copies_in_both_parts_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    parts = [["a", "b", "b", "c"], ["b", "c", "d"]]
    train, held = (Examples([(text,) for text in part], None, [], "dev.csv") for part in parts)
    report_copies(train, held)
    report_copies(train, held._replace(texts=[("d",)]))
    (message,) = caplog.messages
    assert message.startswith("dev.csv: 2 of 3 samples to score have the text of a row to train on")


def test_classes_that_differ_in_capitals_only_are_told(tmp_path: Path) -> None:
    values = ["true", '"True"', '"x"', "false"]
    (tmp_path / "train.jsonl").write_text("".join(f'{{"text": "a", "label": {each}}}\n' for each in values))
    loaded = load(tmp_path, {"train_file": "train.jsonl"})
    assert loaded.config.classification_data.classes == ["True", "false", "true", "x"]
    (note,) = (line for line in plan_warnings(loaded) if "capitals" in line)
    assert "True, true differ in capitals only" in note
    (tmp_path / "train.jsonl").write_text('{"text": "a", "label": true}\n{"text": "a", "label": false}\n')
    assert not any("capitals" in line for line in plan_warnings(load(tmp_path, {"train_file": "train.jsonl"})))


def test_a_separator_within_a_label_is_noted(tmp_path: Path) -> None:
    """The labels of lists have the usual one between them in predictions."""
    rows = [{"text": "a", "label": ["sad", "sci-fi; dark"]}, {"text": "b", "label": []}]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for separator, count in (({}, 1), ({"label_separator": "|"}, 0)):
        lines = plan_warnings(load(tmp_path, {"train_file": "train.jsonl", **separator}))
        assert sum('is within the label "sci-fi; dark"; set it to a text' in line for line in lines) == count


def test_blank_lines_and_unnamed_columns_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label,,\r\n\r\na,x,,\r\n\r\nb,y,1,2\r\n")
    (tmp_path / "a.jsonl").write_text('\n{"text": "a", "label": "x"}\n \t\n{"text": "b", "label": "y"}\n\n')
    for name in ("a.csv", "a.jsonl"):
        result = read(tmp_path, train_file=name, classes=["x", "y"])
        assert result.texts == [("a",), ("b",)] and result.labels.tolist() == [0, 1]


@pytest.mark.parametrize(("field", "flag"), [("validation_file", "--do-validation"), ("test_file", "--do-test")])
def test_columns_of_unused_files_are_not_checked(field: str, flag: str, tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,label\na,x\nb,y\n")
    (tmp_path / "other.csv").write_text("words\na\n")
    section = {**CSV, field: "other.csv"}
    with pytest.raises(UserError, match=r"other\.csv: has no column text; name one of its columns, words"):
        load(tmp_path, section, flag)
    load(tmp_path, section, flag, "false")
    (tmp_path / "other.csv").write_text("text\na\n")
    if field == "test_file":
        load(tmp_path, section, flag)  # nobody knows its labels


@pytest.mark.parametrize("number", ["-inf", "1_000", "1e39"])
def test_broken_scores(number: str, tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text(f"text,label\na,1e38\nb,{number}\n")
    with pytest.raises(UserError, match=rf"line 3: label is '{number}', not a number"):
        read(tmp_path, **CSV, regression=True)


def test_a_missing_file_and_too_few_rows(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no file .*train.csv; .*--classification-data.train"):
        read(tmp_path, **CSV, classes=["x", "y"])
    (tmp_path / "train.csv").write_text(ROWS)
    with pytest.raises(UserError, match=r"too few rows to hold out a part.*validation_fraction"):
        read(tmp_path, "validation", **CSV, classes=["x", "y"], validation_fraction=0.4)


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
def test_predictions_have_the_ids_and_the_classes(kind: str, tmp_path: Path) -> None:
    path, section = tmp_path / f"predictions.{kind}", {"test_file": f"x.{kind}", "label": "mood"}
    task = user_task(**ClassificationData(**section, classes=["so, so", "good"]).without_loss())
    write_submission(path, task, ["007", 1], np.array([0, 1]))
    with open(path, encoding="utf-8", newline="") as file:
        lines = file.readlines() if kind == "jsonl" else csv.DictReader(file, delimiter="," if kind == "csv" else "\t")
        rows = [json.loads(line) if kind == "jsonl" else line for line in lines]
    assert [{key: str(value) for key, value in row.items()} for row in rows] == [
        {"id": "007", "mood": "so, so"}, {"id": "1", "mood": "good"},
    ]  # fmt: skip
    numbers = user_task(**ClassificationData(**section, regression=True).without_loss())
    write_submission(path, numbers, [0, 1], np.array([1234.5, -1e-7], np.float32))
    assert "1234.5" in path.read_text() and "-1e-07" in path.read_text()
