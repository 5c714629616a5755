"""Checks that records can be decoded and that their numbers are valid for the model."""

from __future__ import annotations

from typing import Callable, Dict, Mapping, Optional, Sequence, Tuple

import numpy as np

from data_utils.records.decoding import ExampleError, decode_examples
from data_utils.records.features import PACKING_COMMAND, Feature, FeatureSpec

Batch = Dict[str, np.ndarray]
_REMAKE = "make the data set again"


def good_records(
    messages: Sequence[bytes], features: Sequence[Feature], find: Callable[[Batch], Optional[ExampleError]]
) -> Tuple[Batch, Dict[int, ExampleError]]:
    """Decode a batch, and isolate bad records, in which ``find`` finds a problem, by halving it; return the arrays of
    the good ones, and the problem of each other one by its index in the batch.
    """
    try:
        batch = decode_examples(features, messages)
        problem = find(batch) if messages else None
    except ExampleError as error:
        problem = error.with_traceback(None)  # whose frames would keep the batch
    if problem is None:
        return batch, {}
    if len(messages) == 1:
        return decode_examples(features, []), {0: problem}
    middle = len(messages) // 2
    first, problems = good_records(messages[:middle], features, find)
    second, others = good_records(messages[middle:], features, find)
    problems.update({middle + row: problem for row, problem in others.items()})
    return {name: np.concatenate([values, second[name]]) for name, values in first.items()}, problems


def find_problem(spec: FeatureSpec, batch: Mapping[str, np.ndarray]) -> Optional[ExampleError]:
    """Return the first record of a batch, ``(records, length)`` by name, with a value out of range, or None."""
    problems = [_find_feature_problem(feature, batch[feature.name]) for feature in spec.features]
    if spec.packed and not any(problems):
        problems = [_find_pack_problem(batch)]
    return min((problem for problem in problems if problem is not None), default=None, key=lambda problem: problem.row)


def _find_feature_problem(feature: Feature, values: np.ndarray) -> Optional[ExampleError]:
    low, high = values.min(), values.max()
    if feature.below is None:
        if low >= 0 and np.isfinite(high):  # A NaN makes the minimum NaN.
            return None
        row, index = np.argwhere(~(np.isfinite(values) & (values >= 0)))[0].tolist()
        reason = f"has {feature.name} {values[row, index]} at index {index}, not a finite number of at least 0"
        return ExampleError(row, reason, _REMAKE)
    if low >= 0 and high < feature.below:
        return None
    row, index = np.argwhere((values < 0) | (values >= feature.below))[0].tolist()
    value = int(values[row, index])
    reason = f"has {feature.name} {value} at index {index}, outside [0, {feature.below})"
    if feature.range_setting is None or value < 0:
        return ExampleError(row, reason, _REMAKE)
    fix = f"set {feature.range_setting} to {value + 1} or more, or dataset_dir to a data set made for {feature.below}"
    return ExampleError(row, f"{reason}, which {feature.range_setting} {feature.below} allows", fix)


def find_sequence_problem(batch: Mapping[str, np.ndarray]) -> Optional[ExampleError]:
    """Return a record that is not one padded sequence, or that masks padding, or None."""
    numbers, positions = batch["input_mask"], np.asarray(batch["masked_lm_positions"])  # (records, S), (records, P)
    outside = (batch["masked_lm_weights"] > 0) & (positions >= np.sum(numbers, axis=1)[:, None])
    checks = {
        "has an input_mask with padding between its tokens, or no token": ~is_one_sequence(numbers),
        "has masked_lm_positions in the padding": outside.any(axis=1),
    }
    return first_of(checks, _REMAKE)


def is_one_sequence(input_mask: np.ndarray) -> np.ndarray:
    """Return whether each row of ``input_mask`` (records, S) is one or more ones followed by zeros, (records,)."""
    mask = np.asarray(input_mask)
    lengths = (mask == 1).sum(axis=1)
    return (mask == (np.arange(mask.shape[1]) < lengths[:, None])).all(axis=1) & (lengths > 0)


def first_of(checks: Mapping[str, np.ndarray], fix: str) -> Optional[ExampleError]:
    """Return the problem of the first record for which a check, (records,) by its reason, is true."""
    problems = (ExampleError(int(np.argmax(wrong)), reason, fix) for reason, wrong in checks.items() if wrong.any())
    return min(problems, default=None, key=lambda problem: problem.row)


def _find_pack_problem(batch: Mapping[str, np.ndarray]) -> Optional[ExampleError]:
    """Return the first pack whose features disagree on the positions of its sequences, which training would mix up."""
    numbers = np.asarray(batch["input_mask"])  # (packs, S)
    slots = batch["next_sentence_weights"].shape[1]
    starts, expected = _sequence_starts(numbers, slots)
    filled = np.arange(slots) < numbers.max(axis=1)[:, None]
    masked = np.take_along_axis(numbers, np.asarray(batch["masked_lm_positions"], np.int64), axis=1)
    checks = {
        "input_mask that is not 1, 2, … for one sequence after another, then 0": ~_is_in_order(numbers),
        "position_ids that do not start at 0 with each sequence of input_mask": batch["position_ids"] != expected,
        "next_sentence_weights that are not 1 for each sequence of input_mask, then 0": (
            batch["next_sentence_weights"] != filled
        ),
        "next_sentence_positions that are not the first tokens of the sequences": (
            filled & (batch["next_sentence_positions"] != starts)
        ),
        "masked_lm_positions in the padding": (masked == 0) & (batch["masked_lm_weights"] > 0),
    }
    wrong = {f"has {what}": values.any(axis=1) for what, values in checks.items()}
    return first_of(wrong, f"make the packs again: {PACKING_COMMAND}")


def _is_in_order(numbers: np.ndarray) -> np.ndarray:
    """Return whether each number may follow the previous one: the same, the next, or final padding; (packs, S)."""
    before = np.concatenate([np.zeros_like(numbers[:, :1]), numbers[:, :-1]], axis=1)
    at_the_end = np.cumsum(numbers[:, ::-1], axis=1)[:, ::-1] == 0
    in_order = (numbers == before) & (numbers > 0) | (numbers == before + 1) | at_the_end
    in_order[:, 0] &= numbers[:, 0] == 1
    return in_order


def _sequence_starts(numbers: np.ndarray, slots: int) -> Tuple[np.ndarray, np.ndarray]:
    """Return each sequence's start in its pack (packs, slots) and each token's position in its sequence (packs, S)."""
    columns = np.arange(numbers.shape[1])
    first = np.ones(numbers.shape, bool)
    first[:, 1:] = numbers[:, 1:] != numbers[:, :-1]
    own_start = np.maximum.accumulate(np.where(first, columns, 0), axis=1)
    starts = np.stack([np.argmax(numbers == number + 1, axis=1) for number in range(slots)], axis=1)
    return starts, np.where(numbers > 0, columns - own_start, 0)
