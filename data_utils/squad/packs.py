"""Several windows in one row of the batch, and a model's scores of such rows given back to their windows.

Shapes: W windows, M packs, N windows in a pack at most, S tokens of a pack.
"""

from __future__ import annotations

from collections import deque
from typing import Deque, Dict, List, Sequence

import numpy as np

from data_utils.packing.merge import lay_out, scatter_tokens
from data_utils.records.features import FeatureSpec
from data_utils.records.pipeline import SampleReader
from utilities.errors import UserError

ALGORITHM = "spfhp"  # fills windows' rows about as well as the others, and needs no solver


def pack_windows(lengths: np.ndarray, max_seq_length: int, max_sequences_per_pack: int, seed: int) -> List[List[int]]:
    """Which windows share a pack: each is in one.

    Args:
        lengths: ``(W,)`` tokens of each window.
        max_seq_length: S.
        max_sequences_per_pack: N.
        seed: decides which windows of the same length go where.
    """
    from data_utils.packing import plan_packing  # only where it is asked for: it loads SciPy

    counts = np.bincount(lengths, minlength=max_seq_length + 1)[1:]
    plan = plan_packing(counts, max_seq_length, max_sequences_per_pack, ALGORITHM)
    waiting: Dict[int, List[int]] = {}
    for window in np.random.default_rng(seed).permutation(len(lengths)).tolist():
        waiting.setdefault(int(lengths[window]), []).append(window)
    kinds = zip(plan.packs, plan.repeats)
    return [[waiting[length].pop() for length in kind] for kind, times in kinds for _ in range(times)]


class PackedWindowReader:
    """Packs of the windows of another reader, merged when they are read.

    Args:
        spec: of :func:`data_utils.records.features.packed_squad_features`.
        windows: gives one window a row, with labels where ``spec`` has them.
        lengths: ``(W,)`` tokens of each window.
        packs: the windows of each pack.

    Attributes:
        count: M.
        samples: W.
    """

    def __init__(
        self, spec: FeatureSpec, windows: SampleReader, lengths: np.ndarray, packs: Sequence[Sequence[int]]
    ) -> None:
        self.spec = spec
        self.count = len(packs)
        self.samples = windows.count
        self.failures: Deque[UserError] = deque()
        self._windows = windows
        self._lengths = lengths
        self._packs = packs
        self._size = {feature.name: feature.length for feature in spec.features}

    def read(self, positions: np.ndarray) -> Dict[str, np.ndarray]:
        """The packs at these positions.

        Returns:
            int32: ``input_ids input_mask segment_ids position_ids`` ``(len(positions), S)``, ``input_mask`` holding 1,
            2, … for the windows of a pack and 0 for padding; and where the specification has them ``start_positions
            end_positions`` ``(len(positions), N)``, counted in the pack, with float32 ``window_weights``, 1 for a
            window and 0 where the pack has fewer.
        """
        packs = [self._packs[position] for position in positions]
        rows = np.concatenate(packs)
        bounds = np.cumsum([0, *map(len, packs)])
        local = [range(begin, end) for begin, end in zip(bounds, bounds[1:])]
        layout = lay_out(self._lengths[rows], local)
        windows = self._windows.read(rows)
        values = {
            "input_ids": windows["input_ids"],
            "segment_ids": windows["segment_ids"],
            "input_mask": np.broadcast_to(layout.places.astype(np.int32)[:, None] + 1, windows["input_ids"].shape),
            "position_ids": np.broadcast_to(
                np.arange(windows["input_ids"].shape[1], dtype=np.int32), windows["input_ids"].shape
            ),
        }
        size = self._size["input_ids"]
        batch = {name: scatter_tokens(layout, value, len(packs), size) for name, value in values.items()}
        if "window_weights" in self._size:
            target = layout.packs, layout.places
            for name in ("start_positions", "end_positions"):
                batch[name] = np.zeros((len(packs), self._size[name]), np.int32)
                batch[name][target] = windows[name][:, 0] + layout.starts
            batch["window_weights"] = np.zeros((len(packs), self._size["window_weights"]), np.float32)
            batch["window_weights"][target] = 1
        return {feature.name: batch[feature.name] for feature in self.spec.features}

    def unpacked(self, values: np.ndarray) -> np.ndarray:
        """What packs have for each token, given back to the windows.

        Args:
            values: ``(M, S)``.

        Returns:
            ``(W, S)``, 0 behind the end of a window.
        """
        layout = lay_out(self._lengths, self._packs)
        given = np.zeros((self.samples, values.shape[1]), values.dtype)
        window, column = np.nonzero(np.arange(values.shape[1]) < layout.lengths[:, None])
        given[layout.rows[window], column] = values[layout.packs[window], layout.starts[window] + column]
        return given
