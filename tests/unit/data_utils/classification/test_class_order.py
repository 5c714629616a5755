"""Classifiers of other origins: the meaning of their outputs, and missing classifiers."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

from checkpoints.pretrained.pretrained import Pretrained
from checkpoints.pretrained.weights import Weight
from data_utils.classification.benchmarks import TASKS
from data_utils.classification.tasks import BenchmarkTask
from data_utils.classification.user_task import user_task
from settings.data_sections import ClassificationData
from tasks.classification import select_benchmark
from tasks.saved_classifier import class_rows
from tasks.token_classification import label_names, tag_rows
from utilities.errors import UserError


def head(outputs: int) -> dict[str, Weight]:
    return {"classifier.weight": Weight((outputs, 8), lambda: np.zeros((outputs, 8), np.float32), "here")}


def start(settings: dict[str, Any], native: bool = False, outputs: int = 3) -> Pretrained:
    return Pretrained("somewhere", head(outputs) if outputs else {}, {}, settings=settings, native=native)


NAMES = {"0": "neutral", "1": "positive", "2": "negative"}


def user_classes(*names: str) -> BenchmarkTask:
    return user_task(**ClassificationData(classes=list(names)).without_loss())


def test_outputs_in_another_order_are_sorted() -> None:
    # The order of facebook/bart-large-mnli and many other MNLI models.
    names = {"0": "CONTRADICTION", "1": "NEUTRAL", "2": "ENTAILMENT"}
    for trains in (False, True):
        rows = class_rows(start({"id2label": names}), TASKS["mnli"], trains)
        logits = np.array([[0.1, 0.2, 0.7]])  # says entailment
        assert TASKS["mnli"].labels[int(np.argmax(logits[:, rows]))].value == "entailment"
        same = start({"id2label": {"0": "unacceptable", "1": "acceptable"}}, outputs=2)
        assert class_rows(same, TASKS["cola"], trains) == [0, 1]
        other = start({"id2label": {"1": "0", "0": "1"}}, outputs=2)
        assert class_rows(other, TASKS["cola"], trains) == [1, 0]


def test_unnamed_outputs_are_named_by_their_numbers() -> None:
    """Texts are sorted by their characters, so ``LABEL_10`` is before ``LABEL_2``."""
    names = sorted(f"LABEL_{number}" for number in range(12))
    for trains in (False, True):
        rows = class_rows(start({}, outputs=12), user_classes(*names), trains)
        assert rows == [int(name[len("LABEL_") :]) for name in names]


@pytest.mark.parametrize(
    ("names", "rows", "line"),
    [
        (("negative", "neutral", "positive"), [2, 0, 1], "matched by name"),
        (("neutral", "positive", "negative"), [0, 1, 2], ""),
        (("Positive ", "mixed", "neutral"), [1, None, 0], "begin anew: mixed; left out: negative"),
        (("negative", "positive"), [2, 1], "left out: neutral"),
        (("toxic", "harmless"), [None] * 2, "none of which is one of toxic, harmless; the head begins anew"),
        (("0", "1", "2"), None, "neutral, positive, negative; they are assumed to be in the order of 0, 1, 2"),
    ],
)
def test_a_trained_head_is_continued_by_the_names_of_its_classes(
    names: tuple[str, ...], rows: list[int | None] | None, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    trained = start({"id2label": NAMES})
    with caplog.at_level("INFO"):
        assert class_rows(trained, user_classes(*names), trains=True) == rows
    assert line in caplog.text and bool(line) == bool(caplog.records)


def test_names_that_differ_by_capitals_alone_are_told_apart() -> None:
    trained = start({"id2label": {"0": "us", "1": "US", "2": "Them"}})
    for trains in (False, True):
        assert class_rows(trained, user_classes("US", "them", "us"), trains) == [1, 2, 0]
    twice = start({"id2label": {"0": "a", "1": "a", "2": "b"}})  # which cannot be evaluated
    assert class_rows(twice, user_classes("a", "a", "b"), trains=True) == [0, 1, 2]


@pytest.mark.parametrize(
    ("tags", "rows", "line"),
    [
        (["O", "B-LOC", "B-PER"], [1, 0, 2], "matched by name"),
        (["O", "B-PER"], [1, 2], "left out: B-LOC"),
        (["O", "B-PER", "B-ORG"], [1, 2, None], "begin anew: B-ORG; left out: B-LOC"),
        (["NOUN", "VERB"], [None, None], "the head begins anew"),
    ],
)
def test_tags_are_continued_by_their_names(
    tags: list[str], rows: list[int | None], line: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        assert tag_rows(start({"id2label": {"0": "B-LOC", "1": "O", "2": "B-PER"}}), tags) == rows
        assert line in caplog.text
        assert tag_rows(start({}), ["O", "B-PER", "I-PER"]) is None
        marks_at_end = start({"id2label": {"0": "PER-B", "1": "O", "2": "PER-I"}})
        assert tag_rows(marks_at_end, ["O", "B-PER", "I-PER"]) == [1, 0, 2]
        assert label_names(marks_at_end, None, False) == ["B-PER", "O", "I-PER"]
    assert "does not name its tags; they are taken, in order, as O, B-PER, I-PER" in caplog.text


@pytest.mark.parametrize("names", [["B-Loc", "O", "B-LOC"], ["B-LOC", "O", "B-LOC"]])
def test_a_tagger_is_asked_with_all_of_its_rows(names: list[str]) -> None:
    """Tags that differ in capitals only, or not at all; a row that begins anew would answer at random."""
    model = start({"id2label": {str(number): name for number, name in enumerate(names)}})
    assert label_names(model, None, False) == names and tag_rows(model, names) == [0, 1, 2]


@pytest.mark.parametrize("settings", [{}, {"id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}}])
def test_unnamed_outputs_have_the_order_of_the_task(settings: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    assert class_rows(start(settings), TASKS["mnli"], trains=False) is None
    assert not caplog.records


@pytest.mark.parametrize(
    ("settings", "outputs", "names"),
    [
        ({"id2label": {"1": "joy", "0": "anger", "2": "fear"}}, 3, ["anger", "joy", "fear"]),
        ({"labels": ["b", "a", "c"], "config": {}}, 3, ["b", "a", "c"]),
        ({}, 2, ["LABEL_0", "LABEL_1"]),
        ({}, 1, []),
    ],
)
def test_without_a_task_the_model_names_the_classes(settings: dict[str, Any], outputs: int, names: list[str]) -> None:
    model = start(settings, outputs=outputs)
    benchmark = select_benchmark(None, None, model)
    assert [label.name for label in benchmark.labels] == names and benchmark.is_regression == (not names)
    assert class_rows(model, benchmark, trains=False) == (list(range(outputs)) if names else None)


def test_a_run_on_a_benchmark_names_its_classes() -> None:
    trained = start({"config": {"glue_task": "mnli"}}, native=True)
    names = ["contradiction", "entailment", "neutral"]
    rows = class_rows(trained, user_classes(*names), trains=False)
    assert [TASKS["mnli"].labels[row].name for row in rows or []] == names


def test_unknown_names_and_another_task_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    trained = start({"config": {"glue_task": "rte"}}, native=True, outputs=2)
    assert class_rows(trained, TASKS["rte"], trains=False) == [0, 1]
    assert not caplog.records
    class_rows(trained, TASKS["sst2"], trains=False)
    assert "somewhere was trained for rte, not for sst2" in caplog.text
    assert class_rows(start({"id2label": {"0": "joy", "1": "anger"}}, outputs=2), TASKS["sst2"], trains=False) is None
    assert "somewhere calls its classes joy, anger" in caplog.text


FEWER, ABC = user_classes("negative", "mixed"), user_classes("a", "b", "c")
TWO_NAMES, TWICE = {"id2label": {"0": "a", "1": "b"}}, {"id2label": {"0": "a", "1": "b", "2": "a"}}
OF_LABELS = {"config": {"classification_data": {"label_separator": ";"}}}
OF_NUMBERS = {"config": {"classification_data": {"regression": True}}}
REFUSED = [
    (start({"id2label": NAMES}), FEWER, r"has the classes neutral.*this task negative.*classification_data\.classes"),
    (start(TWO_NAMES), ABC, r"has 3 outputs, but its config\.json names 2 classes \(id2label\)"),
    (start(TWICE), None, r"two of its classes have the name a \(id2label\)"),
    (start({}), TASKS["stsb"], r"has 3 outputs, this task 1; name a"),
    (start({}, outputs=1), TASKS["sst2"], r"has 1 output, this task 2; name a"),
    (start({}, outputs=0), TASKS["sst2"], r"has no classifier.*fine-tune it first with run_seq_classification\.py"),
    (start({"problem_type": "regression"}), TASKS["mnli"], "for a number.*, not for one class.*fine-tune it first"),
    (start({"problem_type": "multi_label_classification"}), TASKS["mnli"], "trained for several labels.*, not for one"),
    (start(OF_LABELS, native=True), TASKS["mnli"], "trained for several labels.*, not for one class"),
    (start(OF_NUMBERS, native=True), TASKS["mnli"], "trained for a number.*, not for one class"),
    (start({"config": {"glue_task": "stsb"}}, native=True), TASKS["mnli"], "trained for a number.*, not for one class"),
    (start({"architectures": ["BertForMultipleChoice"]}), TASKS["mnli"], "trained for a choice among samples"),
]


@pytest.mark.parametrize(("model", "task", "message"), REFUSED, ids=[message for *_, message in REFUSED])
def test_a_model_that_does_not_answer_the_task_is_refused(
    model: Pretrained, task: BenchmarkTask | None, message: str
) -> None:
    benchmark = task or select_benchmark(None, None, model)
    with pytest.raises(UserError, match=f"somewhere.*{message}"):
        class_rows(model, benchmark, trains=False)


LABELS = user_task(**ClassificationData(label_separator="|", classes=["a", "b", "c"]).without_loss())


def test_one_class_is_not_taken_for_labels(caplog: pytest.LogCaptureFixture) -> None:
    for settings, native in (
        ({"problem_type": "single_label_classification"}, False),
        ({"config": {"glue_task": "mnli"}}, True),
    ):
        with pytest.raises(UserError, match="trained for one class of each sample, not for several labels"):
            class_rows(start(settings, native), LABELS, trains=False)
    assert class_rows(start({"problem_type": "multi_label_classification"}), LABELS, trains=False) is None
    assert not caplog.records
    assert class_rows(start({}), LABELS, trains=False) is None  # older models have no problem_type
    assert "somewhere does not say that its classes are labels" in caplog.text


@pytest.mark.parametrize("name", ["activation_fn", "sbert_ce_default_activation_function"])
def test_an_activation_of_a_cross_encoder_is_not_passed_over(name: str) -> None:
    """As ``sentence_transformers.CrossEncoder`` writes it: in a section since version 4."""
    for function, is_refused in (("activation.Sigmoid", True), ("linear.Identity", False)):
        value = {name: f"torch.nn.modules.{function}"}
        model = start({"sentence_transformers": value} if name == "activation_fn" else value)
        with pytest.raises(UserError, match=r"ask for Sigmoid") if is_refused else contextlib.nullcontext():
            class_rows(model, TASKS["mnli"], trains=False)
