"""Pre-training records of different lengths, written by TensorFlow, and a function that splits their packs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.support import record_samples

LENGTH, PREDICTIONS, VOCABULARY = 24, 4, 300
MASKED = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")

Sequence = dict[str, Any]


def sequence(number: int, length: int | None = None) -> Sequence:
    """Return record ``number``, whose first tokens encode the number."""
    rng = np.random.default_rng(number)
    tokens = int(rng.integers(4, LENGTH + 1)) if length is None else length
    masked = min(int(rng.integers(0, PREDICTIONS + 1)), tokens)
    ids = np.zeros(LENGTH, np.int64)
    ids[:tokens] = [number // VOCABULARY, number % VOCABULARY, *rng.integers(1, VOCABULARY, tokens - 2)]
    positions = np.zeros(PREDICTIONS, np.int64)
    positions[:masked] = np.sort(rng.choice(tokens, masked, replace=False))
    targets = np.zeros(PREDICTIONS, np.int64)
    targets[:masked] = rng.integers(1, VOCABULARY, masked)
    columns = np.arange(LENGTH)
    return {
        "input_ids": ids,
        "input_mask": (columns < tokens).astype(np.int64),
        "segment_ids": ((columns >= tokens // 2) & (columns < tokens)).astype(np.int64),
        "masked_lm_positions": positions,
        "masked_lm_ids": targets,
        "masked_lm_weights": (np.arange(PREDICTIONS) < masked).astype(np.float32),
        "next_sentence_labels": np.array([number % 2]),
    }


def write(folder: Path, files: list[list[Sequence]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, records in enumerate(files):
        record_samples.write(folder / f"data_{number}.tfrecord", [record_samples.example(record) for record in records])


def comparable(features: Sequence) -> tuple:
    """Return the part of a sequence that packing must preserve, without padding."""
    tokens = int(np.sum(np.asarray(features["input_mask"]) > 0))
    real = np.asarray(features["masked_lm_weights"]) > 0
    return (
        *(tuple(np.asarray(features[name])[:tokens].tolist()) for name in ("input_ids", "segment_ids")),
        *(tuple(np.asarray(features[name])[real].tolist()) for name in MASKED),
        int(np.asarray(features["next_sentence_labels"])[0]),
    )


def split_pack(pack: Sequence) -> list[tuple]:
    """Return the sequences of a pack in the form of :func:`comparable`, and check that the rest of it is padding."""
    sequences = []
    mask = np.asarray(pack["input_mask"])
    masked = {name: np.asarray(pack[name]) for name in MASKED}
    used = np.zeros(masked["masked_lm_ids"].size, bool)
    for number in range(1, int(mask.max()) + 1):
        tokens = np.flatnonzero(mask == number)
        begin, end = int(tokens[0]), int(tokens[-1]) + 1
        assert tokens.size == end - begin, "the tokens of a sequence are adjacent"
        assert np.array_equal(np.asarray(pack["position_ids"])[begin:end], np.arange(end - begin))
        assert pack["next_sentence_positions"][number - 1] == begin
        assert pack["next_sentence_weights"][number - 1] == 1
        positions = masked["masked_lm_positions"]
        own = (masked["masked_lm_weights"] > 0) & (positions >= begin) & (positions < end)
        used |= own
        sequences.append(
            (
                tuple(np.asarray(pack["input_ids"])[begin:end].tolist()),
                tuple(np.asarray(pack["segment_ids"])[begin:end].tolist()),
                tuple((positions[own] - begin).tolist()),
                tuple(masked["masked_lm_ids"][own].tolist()),
                tuple(masked["masked_lm_weights"][own].tolist()),
                int(pack["next_sentence_labels"][number - 1]),
            )
        )
    for name in ("input_ids", "segment_ids", "position_ids"):
        assert not np.asarray(pack[name])[mask == 0].any()
    for values in masked.values():
        assert not values[~used].any()
    for name in ("next_sentence_positions", "next_sentence_labels", "next_sentence_weights"):
        assert not np.asarray(pack[name])[len(sequences) :].any()
    return sequences
