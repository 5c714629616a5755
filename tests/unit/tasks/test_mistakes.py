"""What went wrong is counted as by a plain loop, and the report shows it with the texts as they are."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from data_utils.token_classification import entity_scores
from reports.page import write_report
from tasks.mistakes import (
    MOST_WORST,
    NONE,
    Mistakes,
    class_mistakes,
    label_mistakes,
    number_mistakes,
    tag_mistakes,
    write_mistakes,
)
from tests.support.html_pages import HOSTILE, Page, assert_self_contained
from tests.support.run_folders import make_run, period

NAMES = ["bad", "good", "so, so"]


def test_classes_are_counted_by_expected_and_predicted() -> None:
    scores = np.random.default_rng(1).random((90, 3))
    texts, shares = [(f"text {number}",) for number in range(90)], scores / scores.sum(axis=1, keepdims=True)
    labels = np.random.default_rng(2).integers(0, 3, 90)
    mistakes = class_mistakes("dev", NAMES, texts, labels, shares)
    pairs = Counter(
        (label, max(range(3), key=lambda n: row[n])) for label, row in zip(labels.tolist(), shares.tolist())
    )
    assert mistakes.headings == ["", *NAMES]
    assert mistakes.rows == [[NAMES[a], *(pairs[a, b] for b in range(3))] for a in range(3)]
    wrong = sorted((-max(row), n) for n, row in enumerate(shares.tolist()) if np.argmax(row) != labels[n])
    assert [row[-1] for row in mistakes.worst] == [texts[n][0] for _, n in wrong[:MOST_WORST]]
    first = wrong[0][1]
    assert mistakes.worst[0][:2] == [NAMES[labels[first]], NAMES[shares[first].argmax()]]
    assert mistakes.worst[0][2] == pytest.approx(shares[first].max(), abs=1e-4)


def test_many_classes_have_their_most_frequent_confusions() -> None:
    names = [f"c{number}" for number in range(30)]
    labels = np.array([3, 3, 3, 5, 5, 7])
    shares = np.zeros((6, 30))
    shares[np.arange(6), [4, 4, 3, 6, 5, 7]] = 1
    mistakes = class_mistakes("dev", names, [("t",)] * 6, labels, shares)
    assert mistakes.rows == [["c3", "c4", 2], ["c5", "c6", 1]]


def test_no_error_is_worst_if_all_is_right() -> None:
    assert class_mistakes("dev", NAMES, [("a",), ("b",)], np.array([0, 2]), np.eye(3)[[0, 2]]).worst == []
    assert number_mistakes("dev", [("a",)], np.array([2.5]), np.array([2.5])).worst == []


def test_labels_are_counted_one_by_one() -> None:
    labels = np.array([[1, 0], [1, 1], [0, 0], [0, 1]])
    shares = np.array([[0.9, 0.8], [0.15, 0.6], [0.7, 0.1], [0.4, 0.45]])
    mistakes = label_mistakes("dev", ["dark", "funny"], [("a", "b"), ("c",), ("d",), ("e",)], labels, shares)
    assert mistakes.rows == [["dark", 2, 1, 1, 1, 0.5], ["funny", 2, 1, 1, 1, 0.5]]
    assert [(row[0], row[1], row[3]) for row in mistakes.worst] == [
        ("dark", "missing", "c"),
        ("funny", "not expected", "a | b"),
        ("dark", "not expected", "d"),
        ("funny", "missing", "e"),
    ]


def test_numbers_are_points_and_the_largest_errors() -> None:
    labels, predictions = np.array([1.0, 2.0, 4.0]), np.array([1.5, 2.0, 1.0])
    mistakes = number_mistakes("dev", [("a",), ("b",), ("c",)], labels, predictions)
    values = [row[1] for row in mistakes.rows]
    assert values == pytest.approx([3.5 / 3, (9.25 / 3) ** 0.5, -2.5 / 3])
    assert mistakes.points == [(1.0, 1.5), (2.0, 2.0), (4.0, 1.0)]
    assert mistakes.worst == [[4.0, 1.0, "c"], [1.0, 1.5, "a"]]


def test_entities_are_counted_by_kind() -> None:
    words = [["Anna", "saw", "New", "York"], ["Bo", "ran"]]
    gold, own = [["B-PER", "O", "B-LOC", "I-LOC"], ["B-PER", "O"]], [["B-PER", "O", "B-LOC", "O"], ["B-PER", "O"]]
    mistakes = tag_mistakes("dev", words, gold, own, entity_scores(gold, own), has_entities=True)
    assert mistakes.headings == ["kind", "precision", "recall", "f1", "entities"]
    assert mistakes.rows == [["LOC", 0.0, 0.0, 0.0, 1], ["PER", 1.0, 1.0, 1.0, 2]]
    assert mistakes.worst == [["LOC: New York", "LOC: New", "Anna saw New York"]]


def test_long_texts_are_cut() -> None:
    (row,) = class_mistakes("dev", NAMES, [("x" * 400, "y")], np.array([0]), np.array([[0.1, 0.8, 0.1]])).worst
    assert row[-1] == "x" * 300 + " … | y"


def test_the_report_shows_them(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", [period(10)])
    assert "What went wrong" not in Page(write_report(folder).read_text(encoding="utf-8")).texts
    numbers = number_mistakes("numbers", [("a",), ("b",)], np.array([1.0, 2.0]), np.array([1.5, 2.0]))
    shares = np.array([[0.2, 0.8, 0.0], [0.0, 0.0, 1.0]])
    classes = class_mistakes(HOSTILE, [HOSTILE, "good", "bad"], [(HOSTILE,), ("b",)], np.array([0, 2]), shares)
    write_mistakes(folder, [classes, numbers])
    source = write_report(folder).read_text(encoding="utf-8")
    texts = Page(source).texts
    assert_self_contained(source)
    assert "What went wrong" in texts and texts.count(HOSTILE) == 5  # title, row and column, expected class, text
    assert source.count('id="numbers-1-points"') == 1 and "0.8000" in texts
    whole = Mistakes("x", "y", [], [], [], [])._asdict()
    damaged = [{**whole, "title": None}, {**whole, "rows": ["z"]}, {"rows": 3}, 5]
    (folder / "mistakes.json").write_text(json.dumps([whole, *damaged]))
    assert "x" in Page(write_report(folder).read_text(encoding="utf-8")).texts
    write_mistakes(folder / "absent", [])  # nothing was evaluated


def test_blanks_of_a_text_are_kept_on_the_page(tmp_path: Path) -> None:
    text = "gustave  eiffel\tbuilt"
    classes = class_mistakes("dev", NAMES, [(text,)], np.array([0]), np.array([[0.1, 0.8, 0.1]]))
    tags = tag_mistakes("dev", [["gustave", "eiffel"]], [["B-X", "O"]], [["O", "O"]], {"": {}, "X": {"f1": 0.0}}, True)
    own = tag_mistakes("dev", [["a", "b"]], [["X", "Y"]], [["X", "_"]], {"": {}, "X": {"f1": 0.0}}, False, ["a  b"])
    assert tags.worst[0][-1] == "gustave eiffel"
    assert own.worst == [["Y: b", NONE, "a  b"]]  # a word that was cut has no tag
    folder = make_run(tmp_path / "run", [period(10)])
    write_mistakes(folder, [classes, tags, own])
    source = write_report(folder).read_text(encoding="utf-8")
    page = Page(source)
    assert text in page.texts and "a  b" in page.texts
    assert ".data td { white-space: pre-wrap; }" in source and source.count('<table class="data">') == 6
