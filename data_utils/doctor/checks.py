"""Is each record of a batch what training needs? The first thing that is wrong with each that is not.

Shapes: R records, S max_seq_length, P masked positions, N sequences of a pack (1 in records of one sequence).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from data_utils.packing.decoding import FLOATS, INTEGERS, ExampleError, decode_examples
from data_utils.records.writer import FLOAT_FEATURES, INTEGER_FEATURES

PACKED_INTEGERS = ("position_ids", "next_sentence_positions")
PACKED_FLOATS = ("next_sentence_weights",)

Batch = dict[str, np.ndarray]


class Form(NamedTuple):
    """What the records of a data set look like.

    Attributes:
        max_seq_length: S.
        max_predictions: P.
        max_sequences: N; 0 for records of one sequence.
        vocabulary_size: ids lie below; None where it is not known.
        cls_id, sep_id: None where the vocabulary is not known.
    """

    max_seq_length: int
    max_predictions: int
    max_sequences: int = 0
    vocabulary_size: int | None = None
    cls_id: int | None = None
    sep_id: int | None = None

    @property
    def is_packed(self) -> bool:
        return self.max_sequences > 0

    @property
    def kinds(self) -> dict[str, str]:
        """Features and their types."""
        integers = INTEGER_FEATURES + (PACKED_INTEGERS if self.is_packed else ())
        floats = FLOAT_FEATURES + (PACKED_FLOATS if self.is_packed else ())
        return {**dict.fromkeys(integers, INTEGERS), **dict.fromkeys(floats, FLOATS)}

    @property
    def sizes(self) -> dict[str, int]:
        """Features and how many numbers each has."""
        sizes = dict.fromkeys(("input_ids", "input_mask", "segment_ids"), self.max_seq_length)
        sizes.update(dict.fromkeys(("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"), self.max_predictions))
        sizes["next_sentence_labels"] = max(1, self.max_sequences)
        if self.is_packed:
            sizes["position_ids"] = self.max_seq_length
            sizes.update(dict.fromkeys(("next_sentence_positions", "next_sentence_weights"), self.max_sequences))
        return sizes


def form_of(payload: bytes) -> Form:
    """The form that a record has.

    Raises:
        ExampleError: it is no pre-training record.
    """
    is_packed = True
    try:
        decode_examples([payload], {"next_sentence_weights": FLOATS})
    except ExampleError:
        is_packed = False
    found = decode_examples([payload], Form(1, 1, int(is_packed)).kinds)
    sequences = found["next_sentence_labels"].shape[1] if is_packed else 0
    return Form(found["input_ids"].shape[1], found["masked_lm_ids"].shape[1], sequences)


def decode(payloads: Sequence[bytes], form: Form) -> tuple[Batch | None, np.ndarray, dict[int, str]]:
    """The records that have the form.

    Returns:
        Their arrays (None where there are none), their rows among ``payloads``, and why the others have not: row →
        reason.
    """
    if not payloads:
        return None, np.empty(0, int), {}
    try:
        return decode_examples(payloads, form.kinds, form.sizes), np.arange(len(payloads)), {}
    except ExampleError as error:
        if len(payloads) == 1:
            return None, np.empty(0, int), {0: error.reason}
    middle = len(payloads) // 2  # bad records are few: halves without one are decoded at once
    batch, rows, problems = decode(payloads[:middle], form)
    other, other_rows, other_problems = decode(payloads[middle:], form)
    parts = [part for part in (batch, other) if part is not None]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else None
    shifted = {middle + row: reason for row, reason in other_problems.items()}
    return joined, np.concatenate([rows, middle + other_rows]), {**problems, **shifted}


def find_problems(batch: Batch, form: Form) -> dict[int, str]:
    """Row → what is wrong with it, where something is."""
    problems: dict[int, str] = {}
    for wrong, reason in _checks(batch, form):
        for row in np.flatnonzero(wrong).tolist():
            problems.setdefault(row, reason)
    return problems


def _checks(batch: Mapping[str, np.ndarray], form: Form) -> list[tuple[np.ndarray, str]]:
    """(R,) whether wrong, and the reason; in order of importance."""
    ids, numbers, segments = batch["input_ids"], batch["input_mask"], batch["segment_ids"]
    positions, targets, weights = (batch[f"masked_lm_{name}"] for name in ("positions", "ids", "weights"))
    labels = batch["next_sentence_labels"]
    most = max(1, form.max_sequences)
    limit = form.vocabulary_size if form.vocabulary_size is not None else 1 << 31
    finite = np.isfinite(weights).all(1) & (weights >= 0).all(1)
    inside = ((positions >= 0) & (positions < form.max_seq_length)).all(1)
    real = numbers > 0
    masked = np.take_along_axis(real, np.clip(positions, 0, form.max_seq_length - 1), axis=1)
    checks = [
        (outside(ids, limit), f"has an input_id outside the vocabulary of {limit:,}"),
        (outside(targets, limit), f"has a masked_lm_id outside the vocabulary of {limit:,}"),
        (outside(numbers, most + 1), f"has an input_mask that is not 0 to {most}"),
        (outside(segments, 2), "has segment_ids other than 0 and 1"),
        (outside(labels, 2), "has next_sentence_labels other than 0 and 1"),
        (~finite, "has masked_lm_weights that are no numbers of at least 0"),
        (~inside, "has masked_lm_positions beyond its length"),
        (_gaps(real), "has padding between its tokens, or no token"),
        (((weights > 0) & ~masked).any(1), "masks padding"),
        ((weights <= 0).all(1), "masks nothing"),
    ]
    if form.is_packed:
        checks += _pack_checks(batch, form)
    starts = _is_start(numbers)
    if form.cls_id is not None:
        checks.append(((starts & (ids != form.cls_id)).any(1), "has a sequence that does not begin with [CLS]"))
    if form.sep_id is not None:
        checks.append(((_is_end(numbers) & (ids != form.sep_id)).any(1), "has a sequence that does not end with [SEP]"))
    return checks


def outside(values: np.ndarray, limit: int) -> np.ndarray:
    """(R,) whether any number of a record is not in [0, limit)."""
    return ((values < 0) | (values >= limit)).any(1)


def _gaps(real: np.ndarray) -> np.ndarray:
    return ~real[:, 0] | (real[:, 1:] & ~real[:, :-1]).any(1)


def _is_start(numbers: np.ndarray) -> np.ndarray:
    """(R, S) first tokens of sequences."""
    start = numbers > 0
    start[:, 1:] &= numbers[:, 1:] != numbers[:, :-1]
    return start


def _is_end(numbers: np.ndarray) -> np.ndarray:
    """(R, S) last tokens of sequences."""
    end = numbers > 0
    end[:, :-1] &= numbers[:, 1:] != numbers[:, :-1]
    return end


def _pack_checks(batch: Mapping[str, np.ndarray], form: Form) -> list[tuple[np.ndarray, str]]:
    numbers, weights = batch["input_mask"], batch["next_sentence_weights"]
    places = np.arange(form.max_seq_length)
    step = np.diff(numbers, axis=1)
    in_order = (numbers[:, :1] == 1).all(1) & ((step == 0) | (step == 1) | (numbers[:, 1:] == 0)).all(1)
    begin = np.maximum.accumulate(np.where(_is_start(numbers), places, 0), axis=1)
    own_place = np.where(numbers > 0, places - begin, 0)
    filled = np.arange(form.max_sequences) < numbers.max(1)[:, None]
    first = np.stack([(numbers == number + 1).argmax(1) for number in range(form.max_sequences)], axis=1)
    return [
        (~in_order, "has an input_mask that is not 1, 2, … for one sequence after another"),
        ((batch["position_ids"] != own_place).any(1), "has position_ids that do not begin anew with each sequence"),
        ((weights != filled).any(1), "has next_sentence_weights that do not fit its sequences"),
        (
            (filled & (batch["next_sentence_positions"] != first)).any(1),
            "has next_sentence_positions that are not those of its [CLS]",
        ),
    ]
