"""Objectives count over a whole update, (A, B, …), and sum over its micro batches, (B, …), the same terms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from keras_extensions.backend import tf
from model import losses

A, B, S, P, N, V, C = 3, 4, 12, 2, 3, 7, 5  # micro batches, rows, tokens, masked, sequences, vocabulary, classes

random = np.random.default_rng(0)


def integers(below: int, *shape: int) -> np.ndarray:
    return random.integers(0, below, (A, B, *shape)).astype("int32")


def floats(*shape: int) -> np.ndarray:
    return random.normal(size=(A, B, *shape)).astype("float32")


WEIGHTS = (random.random((A, B, N)) < 0.7).astype("float32")
MASKED = (random.random((A, B, P)) < 0.7).astype("float32")
PRETRAINING = {"masked_lm_ids": integers(V, P), "masked_lm_weights": MASKED}
WORDS = {"masked_lm": floats(P, V)}
SPANS = {"start_logits": floats(S), "end_logits": floats(S)}
NUMBERS = {"input_mask": np.sort(integers(N + 1, S), axis=-1)}

# name → objective, batch, outputs, sequences
CASES = {
    "pre-training": (
        losses.PretrainingObjective,
        {**PRETRAINING, "next_sentence_labels": integers(2, 1)},
        {**WORDS, "next_sentence": floats(2)},
        A * B,
    ),
    "packed pre-training": (
        losses.PretrainingObjective,
        {**PRETRAINING, **NUMBERS, "next_sentence_labels": integers(2, N), "next_sentence_weights": WEIGHTS},
        {**WORDS, "next_sentence": floats(N, 2)},
        WEIGHTS.sum(),
    ),
    "spans": (losses.SpanObjective, {"start_positions": integers(S, 1), "end_positions": integers(S, 1)}, SPANS, A * B),
    "packed spans": (
        losses.SpanObjective,
        {**NUMBERS, "start_positions": integers(S, N), "end_positions": integers(S, N), "sequence_weights": WEIGHTS},
        SPANS,
        WEIGHTS.sum(),
    ),
    "classes": (losses.ClassificationObjective, {"labels": integers(C, 1)}, {"logits": floats(C)}, A * B),
    "packed classes": (
        losses.ClassificationObjective,
        {**NUMBERS, "labels": integers(C, N), "sequence_weights": WEIGHTS},
        {"logits": floats(N, C)},
        WEIGHTS.sum(),
    ),
    "scores": (losses.RegressionObjective, {"labels": floats(1)}, {"logits": floats(1)}, A * B),
    "packed scores": (
        losses.RegressionObjective,
        {**NUMBERS, "labels": floats(N), "sequence_weights": WEIGHTS},
        {"logits": floats(N, 1)},
        WEIGHTS.sum(),
    ),
}


def micro_batches(arrays: dict[str, np.ndarray]) -> list[dict[str, tf.Tensor]]:
    return [{name: tf.constant(values[number]) for name, values in arrays.items()} for number in range(A)]


@pytest.mark.parametrize("case", CASES)
def test_counts_of_an_update_are_the_sums_of_its_micro_batches(case: str) -> None:
    check_counts(case, *CASES[case])


def check_counts(case: str, objective: Any, batch: dict[str, np.ndarray], outputs: dict, sequences: float) -> None:
    instance = objective()
    whole = instance.counts({name: tf.constant(values) for name, values in batch.items()})
    parts = [instance.counts(part) for part in micro_batches(batch)]
    for name, count in whole.items():
        assert float(count) == pytest.approx(sum(float(part[name]) for part in parts)), name
    assert float(whole[instance.losses[-1]]) == sequences
    if case.startswith("packed"):
        assert float(whole[losses.SEQUENCES_PER_PACK]) == A * B
    else:
        assert losses.SEQUENCES_PER_PACK not in whole
    sums = [instance.sums(scores, part) for scores, part in zip(micro_batches(outputs), micro_batches(batch))]
    assert all(part.keys() == whole.keys() for part in sums)


@pytest.mark.parametrize("case", ["packed classes", "packed scores"])
def test_losses_of_packs_equal_those_of_single_rows(case: str) -> None:
    objective, batch, outputs, _ = CASES[case]
    real = WEIGHTS[0] > 0
    one = {"labels": tf.constant(batch["labels"][0][real][:, None])}
    alone = objective().sums({"logits": tf.constant(outputs["logits"][0][real])}, one)
    together = objective().sums(micro_batches(outputs)[0], micro_batches(batch)[0])
    for name, value in alone.items():
        assert float(together[name]) == pytest.approx(float(value), rel=1e-5)
