"""Samples of the packing benchmark have Wikipedia's lengths, valid records, and packs as full as planned."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.samples import SEQUENCES_PER_PACK, histogram, packed_samples
from data_utils.packing.plan import plan_packing
from data_utils.records.packs import sequences_per_pack
from data_utils.records.validation import find_problem

ROWS = 400


@pytest.mark.parametrize("length", [128, 512])
def test_both_kinds_of_rows_are_sound_and_hold_what_the_plan_says(length: int) -> None:
    readers, plan = packed_samples(length, ROWS, 1000), plan_packing(histogram(length), length, SEQUENCES_PER_PACK)
    padded, packed = (reader.read(np.arange(ROWS)) for reader in readers)
    assert [find_problem(reader.spec, rows) for reader, rows in zip(readers, (padded, packed))] == [None, None]
    assert sequences_per_pack(readers[1]) == pytest.approx(plan.packing_factor, rel=0.01)
    share = (packed["input_mask"] > 0).mean()
    assert share == pytest.approx(plan.efficiency, rel=0.01)
    assert share / padded["input_mask"].mean() == pytest.approx(plan.packing_factor, rel=0.02)
    per_token = [rows["masked_lm_weights"].sum() / (rows["input_mask"] > 0).sum() for rows in (padded, packed)]
    assert per_token == [pytest.approx(0.15, abs=0.01)] * 2
