"""Records between the two passes of the shuffle: real tokens only, in flat columns.

Padding and masks of zeros and ones follow from lengths, so a record takes a third of what it takes in a TFRecord.

Shapes: N records, S max_seq_length, P max_predictions_per_seq, T tokens and Q predictions of all records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from data_utils.text.ragged import starts_of, take_rows

FEATURE_ORDER = (
    "input_ids",
    "input_mask",
    "segment_ids",
    "masked_lm_positions",
    "masked_lm_ids",
    "masked_lm_weights",
    "next_sentence_labels",
)
KEY = np.dtype("<u8")
SMALL = np.dtype("<u2")


class Columns(NamedTuple):
    """N records.

    Attributes:
        keys: (N,) where each belongs in the shuffled order.
        lengths, first_lengths: (N,) tokens; tokens up to and with the first [SEP].
        labels: (N,) of the next sentence.
        counts: (N,) predictions.
        tokens: (T,) ids as the model sees them.
        positions, targets: (Q,) masked positions and the ids that belong there.
    """

    keys: np.ndarray
    lengths: np.ndarray
    first_lengths: np.ndarray
    labels: np.ndarray
    counts: np.ndarray
    tokens: np.ndarray
    positions: np.ndarray
    targets: np.ndarray

    @property
    def size(self) -> tuple[int, int, int]:
        """N, T and Q."""
        return self.keys.size, self.tokens.size, self.positions.size


def token_type(vocabulary_size: int) -> np.dtype:
    """The smallest integer that holds any id."""
    return SMALL if vocabulary_size <= 1 << 16 else np.dtype("<u4")


def column_types(token: np.dtype) -> Columns:
    """Types of the columns."""
    return Columns(KEY, SMALL, SMALL, SMALL, SMALL, token, SMALL, token)


def to_columns(features: Mapping[str, np.ndarray], keys: np.ndarray, token: np.dtype) -> Columns:
    """Features of records as columns.

    Args:
        features: (N, S), (N, P) and (N, 1), by their names; real tokens and predictions come first in a row.
        keys: (N,).
        token: see ``token_type``.
    """
    real = features["input_mask"].astype(bool)
    predicted = features["masked_lm_weights"] > 0
    lengths = real.sum(1)
    values = Columns(
        keys=keys,
        lengths=lengths,
        first_lengths=lengths - features["segment_ids"].sum(1),
        labels=features["next_sentence_labels"][:, 0],
        counts=predicted.sum(1),
        tokens=features["input_ids"][real],
        positions=features["masked_lm_positions"][predicted],
        targets=features["masked_lm_ids"][predicted],
    )
    return Columns(*(value.astype(kind) for value, kind in zip(values, column_types(token))))


def to_features(columns: Columns, max_seq_length: int, max_predictions: int) -> dict[str, np.ndarray]:
    """The features that ``to_columns`` took, in the order of a record."""
    place = np.arange(max_seq_length)[None, :]  # (1, S)
    real = place < columns.lengths[:, None]
    predicted = np.arange(max_predictions)[None, :] < columns.counts[:, None]

    def padded(mask: np.ndarray, values: np.ndarray) -> np.ndarray:
        out = np.zeros(mask.shape, np.int32)
        out[mask] = values
        return out

    return {
        "input_ids": padded(real, columns.tokens),
        "input_mask": real.astype(np.uint8),
        "segment_ids": (real & (place >= columns.first_lengths[:, None])).astype(np.uint8),
        "masked_lm_positions": padded(predicted, columns.positions),
        "masked_lm_ids": padded(predicted, columns.targets),
        "masked_lm_weights": predicted.astype(np.float32),
        "next_sentence_labels": columns.labels[:, None],
    }


def take(columns: Columns, rows: np.ndarray) -> Columns:
    """Some of the records, in any order."""
    lengths, counts = columns.lengths.astype(np.int64), columns.counts.astype(np.int64)
    tokens_at, predictions_at = starts_of(lengths)[rows], starts_of(counts)[rows]
    return Columns(
        *(values[rows] for values in columns[:5]),
        take_rows(columns.tokens, tokens_at, lengths[rows]),
        take_rows(columns.positions, predictions_at, counts[rows]),
        take_rows(columns.targets, predictions_at, counts[rows]),
    )


def concatenated(parts: Sequence[Columns]) -> Columns:
    """All records of several columns; at least one must be given."""
    return Columns(*(np.concatenate(values) for values in zip(*parts)))


def to_bytes(columns: Columns) -> bytes:
    """The columns one behind the other."""
    return b"".join(values.tobytes() for values in columns)


def bytes_of(size: tuple[int, int, int], token: np.dtype) -> int:
    """How many bytes ``to_bytes`` gives for N, T and Q."""
    return sum(kind.itemsize * length for kind, length in zip(column_types(token), _lengths(size)))


def from_bytes(data: bytes, size: tuple[int, int, int], token: np.dtype) -> Columns:
    """What ``to_bytes`` wrote.

    Args:
        data: the bytes.
        size: N, T and Q.
        token: type of the ids.
    """
    assert len(data) == bytes_of(size, token), "size and bytes belong together"
    values, offset = [], 0
    for kind, length in zip(column_types(token), _lengths(size)):
        values.append(np.frombuffer(data, kind, length, offset))
        offset += kind.itemsize * length
    return Columns(*values)


def _lengths(size: tuple[int, int, int]) -> tuple[int, ...]:
    records, tokens, predictions = size
    return (*[records] * 5, tokens, predictions, predictions)
