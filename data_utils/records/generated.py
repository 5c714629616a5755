"""Random samples of the right form, for throughput runs and for trying a config without data.

A pool of samples is made once and repeated in a shuffled order, so that reading costs next to nothing. The
targets are independent of the inputs: a model can at best learn the pool by heart, and its loss begins near
ln(vocabulary).
"""

from __future__ import annotations

from collections import deque
from typing import Deque, Dict, Tuple

import numpy as np

from data_utils.records import features as kinds
from data_utils.records.features import Feature, FeatureSpec
from data_utils.records.pipeline import training_dataset
from keras_extensions.backend import tf
from utilities.errors import UserError

POOL_SAMPLES = 1024


class GeneratedReader:
    """A source of ``count`` random samples, the same for the same seed; used like ``RecordReader``.

    Token ids lie in the vocabulary, with [CLS] first and [SEP] last; every token is real; the second half
    is the second segment; masked positions are distinct, ascending and never that of [CLS]; all weights are
    1.

    Args:
        spec: what each sample holds.
        seed: decides the samples.
        count: samples in an epoch.
    """

    def __init__(self, spec: FeatureSpec, seed: int, count: int = POOL_SAMPLES) -> None:
        assert count > 0
        self.spec = spec
        self.count = count
        self.failures: Deque[UserError] = deque()
        random = np.random.default_rng(np.random.SeedSequence([abs(seed), int(seed < 0)]))
        self._samples = {
            feature.name: _values(feature, count, random).astype(feature.dtype) for feature in spec.features
        }

    def read(self, positions: np.ndarray) -> Dict[str, np.ndarray]:
        """The samples at these positions: name → ``(N, L)``, int32 or float32."""
        return {name: values[positions] for name, values in self._samples.items()}


def generated_dataset(
    spec: FeatureSpec,
    *,
    micro_batch_size: int,
    micro_batches_per_update: int,
    seed: int,
    num_updates: int,
    first_update: int = 0,
    prefetch: int = 2,
) -> tf.data.Dataset:
    """Generated data in the form of :func:`data_utils.records.pipeline.training_dataset`.

    Returns:
        a data set of dicts: name → ``(A, B, L)``, static shapes; the same for the same seed.
    """
    return training_dataset(
        GeneratedReader(spec, seed),
        micro_batch_size=micro_batch_size,
        micro_batches_per_update=micro_batches_per_update,
        seed=seed,
        num_updates=num_updates,
        first_update=first_update,
        prefetch=prefetch,
    )


def special_tokens(vocab_size: int) -> Tuple[int, int]:
    """Ids of [CLS] and [SEP]: BERT's own, or the last two of a vocabulary that is too small to have them."""
    return (101, 102) if vocab_size > 103 else (max(vocab_size - 2, 0), vocab_size - 1)


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
    if feature.kind == kinds.POSITIONS:
        assert feature.length < feature.below, f"{feature.length} distinct positions in {feature.below}"
        shuffled = random.random((count, feature.below - 1)).argsort(axis=1)[:, : feature.length]
        return np.sort(shuffled, axis=1) + 1
    values = random.integers(0, feature.below, shape)
    if feature.kind == kinds.TOKENS:
        values[:, 0], values[:, -1] = special_tokens(feature.below)
    return values
