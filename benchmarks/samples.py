"""The data of all competitors: the same random samples, made with numpy alone.

N samples · S sequence · P masked positions
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.jobs import MASKED_POSITIONS, MICRO_BATCH, SEQUENCE_LENGTH, VOCABULARY

SAMPLES = 256
IGNORED = -100  # label of a position that Hugging Face's losses leave out


def samples() -> dict[str, np.ndarray]:
    """Full sequences of random word pieces, in the features of the TFRecords: name → (N, …)."""
    random = np.random.default_rng(1984)
    shape, masked = (SAMPLES, SEQUENCE_LENGTH), (SAMPLES, MASKED_POSITIONS)
    places = random.random((SAMPLES, SEQUENCE_LENGTH)).argsort(axis=1)[:, :MASKED_POSITIONS]
    integers = {
        "input_ids": random.integers(0, VOCABULARY, shape),
        "input_mask": np.ones(shape),
        "segment_ids": np.broadcast_to(np.arange(SEQUENCE_LENGTH) >= SEQUENCE_LENGTH // 2, shape),
        "masked_lm_positions": np.sort(places, axis=1),
        "masked_lm_ids": random.integers(0, VOCABULARY, masked),
        "next_sentence_labels": random.integers(0, 2, (SAMPLES, 1)),
    }
    made = {name: values.astype("int32") for name, values in integers.items()}
    made["masked_lm_weights"] = np.ones(masked, "float32")
    return made


def hugging_face_samples(data: dict[str, np.ndarray], integer: str = "int32") -> dict[str, np.ndarray]:
    """The same samples by the names of Hugging Face's models, labels over the whole sequence."""
    labels = np.full(data["input_ids"].shape, IGNORED)
    rows = np.arange(len(labels))[:, None]
    labels[rows, data["masked_lm_positions"]] = np.where(data["masked_lm_weights"] > 0, data["masked_lm_ids"], IGNORED)
    return {
        "input_ids": data["input_ids"].astype(integer),
        "attention_mask": data["input_mask"].astype(integer),
        "token_type_ids": data["segment_ids"].astype(integer),
        "labels": labels.astype(integer),
        "next_sentence_label": data["next_sentence_labels"][:, 0].astype(integer),
    }


def batches(data: dict[str, np.ndarray], size: int = MICRO_BATCH) -> Iterator[dict[str, np.ndarray]]:
    """Micro batches without end."""
    count = len(next(iter(data.values()))) // size
    while True:
        for number in range(count):
            yield {name: values[number * size : (number + 1) * size] for name, values in data.items()}
