"""Several samples of a task in one row of the batch, and what a model makes of such rows given back to each sample.

Shapes: W samples, M packs, N samples in a pack at most, S tokens of a pack.
"""

from __future__ import annotations

from collections import deque
from typing import Deque, Dict, List, Mapping, Sequence

import numpy as np

from data_utils.packing.merge import Layout, lay_out, scatter_tokens
from data_utils.records.features import (
    COUNT,
    NUMBERS,
    POSITIONS,
    SEGMENTS,
    TOKENS,
    WEIGHTS,
    Feature,
    FeatureSpec,
)
from data_utils.records.pipeline import SampleReader
from utilities.errors import UserError

ALGORITHM = "optimal"


def pack_samples(lengths: np.ndarray, max_seq_length: int, max_sequences_per_pack: int, seed: int) -> List[List[int]]:
    """Which samples share a pack: each is in one.

    Args:
        lengths: ``(W,)`` tokens of each sample.
        max_seq_length: S.
        max_sequences_per_pack: N.
        seed: decides which samples of the same length go where.
    """
    from data_utils.packing import plan_packing  # only where it is asked for: it loads SciPy

    counts = np.bincount(lengths, minlength=max_seq_length + 1)[1:]
    plan = plan_packing(counts, max_seq_length, max_sequences_per_pack, ALGORITHM)
    waiting: Dict[int, List[int]] = {}
    for sample in np.random.default_rng(seed).permutation(len(lengths)).tolist():
        waiting.setdefault(int(lengths[sample]), []).append(sample)
    kinds = zip(plan.packs, plan.repeats)
    return [[waiting[length].pop() for length in kind] for kind, times in kinds for _ in range(times)]


class PackedReader:
    """Packs of the samples of another reader, merged when they are read.

    Args:
        spec: of the packs. A feature of N numbers is filled by what it means: positions are counted in the pack
            (those of a sample, or of its first token where samples have no such feature), weights are 1 for a sample,
            labels are copied.
        samples: gives one sample a row, padded.
        lengths: ``(W,)`` tokens of each sample.
        packs: the samples of each pack.

    Attributes:
        count: M.
        samples: W.
    """

    def __init__(
        self, spec: FeatureSpec, samples: SampleReader, lengths: np.ndarray, packs: Sequence[Sequence[int]]
    ) -> None:
        self.spec = spec
        self.count = len(packs)
        self.samples = samples.count
        self.failures: Deque[UserError] = deque()
        self._reader = samples
        self._lengths = lengths
        self._packs = packs

    def read(self, positions: np.ndarray) -> Dict[str, np.ndarray]:
        """The packs at these positions.

        Returns:
            name → ``(len(positions), S or N)``: tokens one sample behind the other, ``input_mask`` holding 1, 2, … for
            the samples of a pack and 0 for padding, ``position_ids`` restarting with each; and one number for each
            sample of a pack, 0 where it has fewer than N.
        """
        packs = [self._packs[position] for position in positions]
        rows = np.concatenate(packs)
        bounds = np.cumsum([0, *map(len, packs)])
        layout = lay_out(self._lengths[rows], [range(begin, end) for begin, end in zip(bounds, bounds[1:])])
        samples = self._reader.read(rows)
        batch = {}
        for feature in self.spec.features:
            values = _values(feature, samples, layout)
            if feature.kind in _OF_TOKENS:
                batch[feature.name] = scatter_tokens(layout, values, len(packs), feature.length)
            else:
                batch[feature.name] = np.zeros((len(packs), feature.length), feature.dtype)
                batch[feature.name][layout.packs, layout.places] = values
        return batch

    def of_tokens(self, values: np.ndarray) -> np.ndarray:
        """What packs have for each token, given back to the samples.

        Args:
            values: ``(M, S)``.

        Returns:
            ``(W, S)``, 0 behind the end of a sample.
        """
        layout = lay_out(self._lengths, self._packs)
        given = np.zeros((self.samples, values.shape[1]), values.dtype)
        sample, column = np.nonzero(np.arange(values.shape[1]) < layout.lengths[:, None])
        given[layout.rows[sample], column] = values[layout.packs[sample], layout.starts[sample] + column]
        return given

    def of_samples(self, values: np.ndarray) -> np.ndarray:
        """What packs have for each place, given back to the samples: ``(M, N, …)`` to ``(W, …)``."""
        layout = lay_out(self._lengths, self._packs)
        given = np.empty((self.samples, *values.shape[2:]), values.dtype)
        given[layout.rows] = values[layout.packs, layout.places]
        return given


_OF_TOKENS = (TOKENS, NUMBERS, SEGMENTS, COUNT)


def _values(feature: Feature, samples: Mapping[str, np.ndarray], layout: Layout) -> np.ndarray:
    """What a feature of packs holds for each sample: a row of tokens, or one number."""
    shape = samples["input_ids"].shape
    if feature.kind == NUMBERS:
        return np.broadcast_to(layout.places.astype(np.int32)[:, None] + 1, shape)
    if feature.kind == COUNT:
        return np.broadcast_to(np.arange(shape[1], dtype=np.int32), shape)
    if feature.kind == WEIGHTS:
        return np.ones(shape[0], np.float32)
    if feature.kind == POSITIONS:
        own = samples[feature.name][:, 0] if feature.name in samples else 0
        return layout.starts + own
    values = samples[feature.name]
    return values if feature.kind in _OF_TOKENS else values[:, 0]
