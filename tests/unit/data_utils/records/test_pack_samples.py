"""Which samples share a pack: each is in one, and none is overfull."""

from __future__ import annotations

import numpy as np
import pytest

from data_utils.records.packs import pack_samples


@pytest.mark.parametrize("places", [1, 3, 8])
def test_every_sample_is_in_one_pack(places: int) -> None:
    lengths = np.random.default_rng(0).integers(3, 65, 500)
    packs = pack_samples(lengths, 64, places, seed=1)
    assert sorted(sample for pack in packs for sample in pack) == list(range(500))
    assert all(0 < len(pack) <= places and lengths[pack].sum() <= 64 for pack in packs)
    assert len(packs) < 500 or places == 1


def test_the_seed_decides_which_of_equal_length_go_where() -> None:
    lengths = np.repeat([20, 30], 50)
    packs = pack_samples(lengths, 64, 3, seed=1)
    assert packs == pack_samples(lengths, 64, 3, seed=1)
    assert packs != pack_samples(lengths, 64, 3, seed=2)
