"""Readers of samples in memory and of generated samples.

N samples asked for · L length of a feature
"""

from __future__ import annotations

from typing import Dict, Mapping

import numpy as np

from data_utils.records import features as kinds
from data_utils.records.features import Feature, FeatureSpec

POOL_SAMPLES = 1024


class ArrayReader:
    """Reads samples from arrays, name → ``(count, L)``; names that are not features of ``spec`` are ignored."""

    def __init__(self, spec: FeatureSpec, arrays: Mapping[str, np.ndarray]) -> None:
        self.spec = spec
        self._arrays = {f.name: np.asarray(arrays[f.name], f.dtype).reshape(-1, f.length) for f in spec.features}
        counts = {len(values) for values in self._arrays.values()}
        assert len(counts) == 1, f"features of different numbers of samples: {sorted(counts)}"
        (self.count,) = counts

    def read(self, positions: np.ndarray) -> Dict[str, np.ndarray]:
        """Return the samples at these positions: name → ``(N, L)``, int32 or float32."""
        return {name: values[positions] for name, values in self._arrays.items()}


class GeneratedReader(ArrayReader):
    """Random samples of the right form, for throughput runs and for trying out a config without data.

    A pool of samples is made once and read in a shuffled order, which costs almost nothing. Token ids are in the
    vocabulary, with [CLS] first and [SEP] last; every token is real; the second half is the second segment; masked
    positions are distinct, ascending and never that of [CLS]; all weights are 1. Targets do not depend on the inputs,
    so a model can at best memorise the pool, and its loss begins near ln(vocabulary).
    """

    def __init__(self, spec: FeatureSpec, seed: int, count: int = POOL_SAMPLES) -> None:
        assert count > 0
        random = np.random.default_rng(np.random.SeedSequence([abs(seed), int(seed < 0)]))
        super().__init__(spec, {feature.name: _values(feature, count, random) for feature in spec.features})


def _values(feature: Feature, count: int, random: np.random.Generator) -> np.ndarray:
    shape = (count, feature.length)
    if feature.kind == kinds.WEIGHTS or feature.kind == kinds.MASK:
        return np.ones(shape)
    if feature.kind == kinds.SCORE:
        return random.random(shape)
    assert feature.below is not None
    if feature.kind == kinds.SEGMENTS:
        second = np.arange(feature.length) >= feature.length // 2
        return np.broadcast_to(second & (feature.below > 1), shape)
    if feature.kind == kinds.TOKEN_POSITIONS:
        assert feature.length < feature.below, f"{feature.length} distinct positions in {feature.below}"
        shuffled = random.random((count, feature.below - 1)).argsort(axis=1)[:, : feature.length]
        return np.sort(shuffled, axis=1) + 1
    values = random.integers(0, feature.below, shape)
    if feature.kind == kinds.TOKENS:  # BERT's ids, or the last two of a vocabulary that is too small to have them
        last = feature.below - 1
        values[:, 0], values[:, -1] = (101, 102) if last > 102 else (max(last - 1, 0), last)
    return values
