"""Samples that are already in memory, in the form the input pipeline reads.

N samples asked for · L length of a feature
"""

from __future__ import annotations

from collections import deque
from typing import Deque, Dict, Mapping

import numpy as np

from data_utils.records.features import FeatureSpec
from utilities.errors import UserError


class ArrayReader:
    """Samples of arrays, used like ``RecordReader``.

    Args:
        spec: what each sample holds.
        arrays: name → ``(count, L)``, one for each feature of ``spec``; other names are left out.

    Example:
        >>> reader = ArrayReader(classification_features(128, 30522, 2), arrays)  # doctest: +SKIP
    """

    def __init__(self, spec: FeatureSpec, arrays: Mapping[str, np.ndarray]) -> None:
        self.spec = spec
        self.failures: Deque[UserError] = deque()
        self._arrays = {f.name: np.asarray(arrays[f.name], f.dtype).reshape(-1, f.length) for f in spec.features}
        counts = {len(values) for values in self._arrays.values()}
        assert len(counts) == 1, f"features of different numbers of samples: {sorted(counts)}"
        (self.count,) = counts

    def read(self, positions: np.ndarray) -> Dict[str, np.ndarray]:
        """The samples at these positions: name → ``(N, L)``, int32 or float32."""
        return {name: values[positions] for name, values in self._arrays.items()}
