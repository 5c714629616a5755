"""Which checkpoints may teach a task, and what decides that a teacher's outputs are those of before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from checkpoints.pretrained.pretrained import Pretrained
from checkpoints.pretrained.weights import Weight
from data_utils.classification.benchmarks import TASKS
from data_utils.classification.features import Features
from teacher.outputs import check_teacher, read_logits, teacher_identity
from utilities.errors import UserError


def checkpoint(outputs: int = 3, value: float = 0.0, native: bool = False, **settings: Any) -> Pretrained:
    weight = Weight((outputs, 8), lambda: np.full((outputs, 8), value, np.float32), "here")
    return Pretrained("somewhere", {"classifier.weight": weight}, {}, settings=settings, native=native)


NAMED = {"id2label": {"0": "neutral", "1": "contradiction", "2": "entailment"}}


@pytest.mark.parametrize(
    ("start", "task", "message"),
    [
        (checkpoint(2), "mnli", "somewhere has 2 outputs, this task entailment, neutral, contradiction; name"),
        (checkpoint(2), "stsb", "somewhere has 2 outputs, this task a number"),
        (
            checkpoint(2, native=True, task="classification", config={"glue_task": "rte"}),
            "sst2",
            "the classes entailment",
        ),
        (checkpoint(architectures=["BertForTokenClassification"]), "mnli", "is no trained classifier of texts"),
        (Pretrained("somewhere", {}, {}), "mnli", "is no trained classifier of texts"),
    ],
)
def test_who_cannot_teach_a_task(start: Pretrained, task: str, message: str) -> None:
    with pytest.raises(UserError, match=f"distillation.teacher: .*{message}"):
        check_teacher(start, TASKS[task])


def test_who_can(caplog: pytest.LogCaptureFixture) -> None:
    check_teacher(checkpoint(**NAMED), TASKS["mnli"])
    check_teacher(checkpoint(native=True, task="classification", config={"glue_task": "mnli"}), TASKS["mnli"])
    check_teacher(checkpoint(1), TASKS["stsb"])
    assert not caplog.records
    check_teacher(checkpoint(), TASKS["mnli"])
    assert "does not name its classes; they are assumed to be, in order, entailment, neutral" in caplog.text


def test_weights_classes_options_and_inputs_are_a_teachers_identity() -> None:
    def inputs(number: int) -> Features:
        return Features({name: np.full((2, 4), number, np.int32) for name in ("input_ids", "input_mask")}, 0, 0.0)

    start, renamed, other = checkpoint(**NAMED), checkpoint(), checkpoint(value=1.0, **NAMED)
    options = Pretrained("somewhere", start.weights, {"hidden_act": "relu"}, settings=NAMED)
    moved = Pretrained("elsewhere", start.weights, {}, settings=NAMED)
    cases = [(start, "mnli", 1), (renamed, "mnli", 1), (other, "mnli", 1), (options, "mnli", 1), (start, "mnli", 2)]
    found = [teacher_identity(teacher, TASKS[task], inputs(number)) for teacher, task, number in cases]
    assert len(set(found)) == len(found)
    assert teacher_identity(moved, TASKS["mnli"], inputs(1)) == found[0]


@pytest.mark.parametrize("content", [np.zeros((3, 2), np.float32), np.zeros(6, np.float32), np.zeros((2, 3), np.int8)])
def test_kept_answers_of_another_shape_are_computed_again(tmp_path, caplog, content):
    path = tmp_path / "teacher.npz"
    np.savez(path, logits=np.ones((2, 3), np.float32))
    assert read_logits(path, (2, 3)).tolist() == [[1.0] * 3] * 2
    np.savez(path, logits=content)
    assert read_logits(path, (2, 3)) is None
    assert f"{path} is damaged ({content.shape} {content.dtype} instead of (2, 3) float32)" in caplog.text
