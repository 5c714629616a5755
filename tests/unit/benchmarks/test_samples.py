"""Samples of the packing benchmark have Wikipedia's lengths, valid records, and packs as full as planned."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.samples import packed_samples
from data_utils.records.packs import sequences_per_pack
from data_utils.records.validation import find_problem

ROWS = 400


@pytest.mark.parametrize("length", [128, 512])
def test_both_kinds_of_rows_are_sound_and_hold_what_the_plan_says(length: int) -> None:
    samples = packed_samples(length, 3, "spfhp", ROWS, vocab_size=1000)
    padded, packed = (reader.read(np.arange(ROWS)) for reader in (samples.padded, samples.packed))
    assert find_problem(samples.padded.spec, padded) is None
    assert find_problem(samples.packed.spec, packed) is None
    assert sequences_per_pack(samples.packed) == pytest.approx(samples.packing_factor, rel=0.01)
    share = (packed["input_mask"] > 0).mean()
    assert share == pytest.approx(samples.efficiency, rel=0.01)
    assert share / padded["input_mask"].mean() == pytest.approx(samples.packing_factor, rel=0.02)
    per_token = [rows["masked_lm_weights"].sum() / (rows["input_mask"] > 0).sum() for rows in (padded, packed)]
    assert per_token == [pytest.approx(0.15, abs=0.01)] * 2
