"""With a teacher, the counts of an update are the sums of its micro batches, too."""

from __future__ import annotations

import functools

import pytest

from model.losses import ClassificationObjective
from teacher.losses import DistillationObjective
from tests.unit.model.test_losses import NUMBERS, WEIGHTS, A, B, C, N, check_counts, floats, integers

TAUGHT = functools.partial(DistillationObjective, ClassificationObjective(), 0.5, 2.0)
CASES = {
    "taught classes": (
        TAUGHT,
        {"labels": integers(C, 1), "teacher_logits": floats(C), "labelled": integers(2, 1)},
        {"logits": floats(C)},
        A * B,
    ),
    "packed taught classes": (
        TAUGHT,
        {
            **NUMBERS,
            "labels": integers(C, N),
            "teacher_logits": floats(N * C),
            "labelled": integers(2, N),
            "sequence_weights": WEIGHTS,
        },
        {"logits": floats(N, C)},
        WEIGHTS.sum(),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_counts_of_an_update_are_the_sums_of_its_micro_batches(case: str) -> None:
    check_counts(case, *CASES[case])
