"""Are the numbers of a batch what the model can take? Answers with the first record that is not."""

from __future__ import annotations

from typing import Mapping, NamedTuple, Optional

import numpy as np

from data_utils.records.features import Feature, FeatureSpec


class Problem(NamedTuple):
    """Why a record cannot be used."""

    row: int  # its place in the batch
    reason: str
    fix: str


def find_problem(spec: FeatureSpec, batch: Mapping[str, np.ndarray]) -> Optional[Problem]:
    """The first record of a batch with a value out of range, or None.

    Args:
        spec: the features.
        batch: name → ``(records, length)``, int64 or float32, before any narrowing.
    """
    found = (_problem_of_feature(feature, batch[feature.name]) for feature in spec.features)
    return min((problem for problem in found if problem is not None), default=None, key=lambda problem: problem.row)


def _problem_of_feature(feature: Feature, values: np.ndarray) -> Optional[Problem]:
    low, high = values.min(), values.max()
    if feature.below is None:
        if low >= 0 and np.isfinite(high):  # A NaN makes the minimum NaN.
            return None
        row, place = np.argwhere(~(np.isfinite(values) & (values >= 0)))[0].tolist()
        return Problem(
            row,
            f"has {feature.name} {values[row, place]} at place {place}, not a finite number of at least 0",
            "make the data set again",
        )
    if low >= 0 and high < feature.below:
        return None
    row, place = np.argwhere((values < 0) | (values >= feature.below))[0].tolist()
    value = int(values[row, place])
    reason = f"has {feature.name} {value} at place {place}, outside [0, {feature.below})"
    if feature.range_setting is None or value < 0:
        return Problem(row, reason, "make the data set again")
    return Problem(
        row,
        f"{reason}, which {feature.range_setting} {feature.below} allows",
        f"set {feature.range_setting} to {value + 1} or more, or dataset_dir to a data set made for {feature.below}",
    )
