"""Classifiers of other origins: the meaning of their outputs, and missing classifiers."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

from checkpoints.pretrained.pretrained import Pretrained
from checkpoints.pretrained.weights import Weight
from data_utils.classification.benchmarks import TASKS
from data_utils.classification.own import own_task
from settings.data_sections import ClassificationData
from settings.schema import TrainingConfig
from tasks.classification import select_benchmark
from tasks.saved_classifier import class_order
from utilities.errors import UserError

HEAD = {"classifier.weight": Weight((3, 8), lambda: np.zeros((3, 8), np.float32), "here")}


def start(settings: dict[str, Any], own: bool = False, weights: dict[str, Weight] = HEAD) -> Pretrained:
    return Pretrained("somewhere", weights, {}, settings=settings, own=own)


def test_outputs_in_another_order_are_sorted() -> None:
    # The order of facebook/bart-large-mnli and many other MNLI models.
    names = {"0": "CONTRADICTION", "1": "NEUTRAL", "2": "ENTAILMENT"}
    order = class_order(start({"id2label": names}), TASKS["mnli"])
    logits = np.array([[0.1, 0.2, 0.7]])  # says entailment
    assert TASKS["mnli"].labels[int(np.argmax(logits[:, order]))].value == "entailment"
    assert class_order(start({"id2label": {"0": "unacceptable", "1": "acceptable"}}), TASKS["cola"]) is None
    assert class_order(start({"id2label": {"1": "0", "0": "1"}}), TASKS["cola"]).tolist() == [1, 0]


@pytest.mark.parametrize("settings", [{}, {"id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}}])
def test_unnamed_outputs_have_the_order_of_the_task(settings: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    assert class_order(start(settings), TASKS["mnli"]) is None
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
    weight = Weight((outputs, 8), lambda: np.zeros((outputs, 8), np.float32), "here")
    model = start(settings, weights={"classifier.weight": weight})
    benchmark = select_benchmark(TrainingConfig.model_validate({}), model)
    assert [label.name for label in benchmark.labels] == names and benchmark.is_regression == (not names)
    assert class_order(model, benchmark) is None


def test_a_run_on_a_benchmark_names_its_classes() -> None:
    trained = start({"config": {"glue_task": "mnli"}}, own=True)
    names = ["contradiction", "entailment", "neutral"]
    order = class_order(trained, own_task(**ClassificationData(classes=names).without_loss()))
    assert [TASKS["mnli"].labels[number].name for number in order] == names


def test_unknown_names_and_another_task_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    assert class_order(start({"config": {"glue_task": "rte"}}, own=True), TASKS["rte"]) is None
    assert not caplog.records
    class_order(start({"config": {"glue_task": "rte"}}, own=True), TASKS["sst2"])
    assert "somewhere was trained for rte, not for sst2" in caplog.text
    assert class_order(start({"id2label": {"0": "joy", "1": "anger"}}), TASKS["sst2"]) is None
    assert "somewhere calls its classes joy, anger" in caplog.text


LABELS = own_task(**ClassificationData(label_separator="|", classes=["a", "b", "c"]).without_loss())


@pytest.mark.parametrize(
    ("settings", "own", "kind"),
    [
        ({"problem_type": "regression"}, False, "a number"),
        ({"problem_type": "multi_label_classification"}, False, "several labels"),
        ({"config": {"classification_data": {"label_separator": ";"}}}, True, "several labels"),
        ({"config": {"classification_data": {"regression": True}}}, True, "a number"),
        ({"config": {"glue_task": "stsb"}}, True, "a number"),
        ({"architectures": ["BertForMultipleChoice"]}, False, "a choice among samples"),
    ],
)
def test_a_classifier_of_another_kind_is_refused(settings: dict[str, Any], own: bool, kind: str) -> None:
    with pytest.raises(UserError, match=f"somewhere was trained for {kind}.*, not for one class.*train first"):
        class_order(start(settings, own), TASKS["mnli"])


def test_one_class_is_not_taken_for_labels(caplog: pytest.LogCaptureFixture) -> None:
    for settings, own in (
        ({"problem_type": "single_label_classification"}, False),
        ({"config": {"glue_task": "mnli"}}, True),
    ):
        with pytest.raises(UserError, match="trained for one class of each sample, not for several labels"):
            class_order(start(settings, own), LABELS)
    assert class_order(start({"problem_type": "multi_label_classification"}), LABELS) is None
    assert not caplog.records
    assert class_order(start({}), LABELS) is None  # older models have no problem_type
    assert "somewhere does not say that its classes are labels" in caplog.text


@pytest.mark.parametrize("name", ["activation_fn", "sbert_ce_default_activation_function"])
def test_an_activation_of_a_cross_encoder_is_not_passed_over(name: str) -> None:
    """As ``sentence_transformers.CrossEncoder`` writes it: in a section since version 4."""
    for function, is_refused in (("activation.Sigmoid", True), ("linear.Identity", False)):
        value = {name: f"torch.nn.modules.{function}"}
        model = start({"sentence_transformers": value} if name == "activation_fn" else value)
        with pytest.raises(UserError, match=r"asks for .*Sigmoid") if is_refused else contextlib.nullcontext():
            class_order(model, TASKS["mnli"])


def test_a_model_without_a_classifier_is_refused() -> None:
    with pytest.raises(UserError, match=r"somewhere has no classifier.*train first"):
        class_order(start({}, weights={}), TASKS["sst2"])
