"""Provides the data of each weight update as ``tf.data`` sets in which no element depends on an earlier one.

A micro batches per update · B micro batch size · L length of a feature · N samples of an evaluation batch
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from typing import Callable, Dict, Iterator, List, Optional, Protocol, Sequence, Tuple

import numpy as np

from data_utils.records.features import COMPUTED, FeatureSpec
from data_utils.records.order import samples_at, select_batch
from keras_extensions.backend import tf

_IDENTIFYING_SAMPLES = 16


class SampleReader(Protocol):
    """A source of samples, such as ``RecordReader`` and ``ArrayReader``, with ``count`` samples in an epoch."""

    spec: FeatureSpec

    @property
    def count(self) -> int: ...

    def read(self, positions: np.ndarray) -> Dict[str, np.ndarray]:
        """Return the samples at these positions: name → ``(N, L)``."""


def training_dataset(
    reader: SampleReader,
    *,
    micro_batch_size: int,
    micro_batches_per_update: int,
    seed: int,
    num_updates: int,
    first_update: int = 0,
    shuffle: bool = True,
    reader_threads: int = 2,
    prefetch: int = 2,
    replica: int = 0,
    replicas: int = 1,
    skipped: Sequence[int] = (),
) -> tf.data.Dataset:
    """Return the data of ``num_updates`` weight updates, from ``first_update`` on.

    The samples of update ``u`` are those at positions [u × G, (u + 1) × G) of the endless sequence of epochs, each
    epoch in its own order, where G is the global batch. A run that resumes at update ``k`` therefore reads the same
    data as without the interruption, and the split of G into micro batches and replicas changes only the shape.

    Args:
        micro_batches_per_update: A, for this process.
        first_update: update of the first element; when resuming, the number of completed updates.
        replica, replicas: number of this process and number of processes that share each global batch.
        skipped: numbers of global batches to leave out, ascending; the updates after them take the next ones.

    Returns:
        A data set of dicts: name → ``(A, B, L)``, int32 or float32, static shapes.
    """
    assert micro_batch_size > 0 and micro_batches_per_update > 0 and 0 <= replica < replicas
    assert first_update >= 0 and num_updates >= 0
    share = micro_batches_per_update * micro_batch_size

    def read_update(update: int) -> List[np.ndarray]:
        start = select_batch(update, skipped) * share * replicas + share * replica
        requested = samples_at(seed, start, share, reader.count, shuffle)
        batch = reader.read(requested)
        shape = (micro_batches_per_update, micro_batch_size, -1)
        return [batch[feature.name].reshape(shape) for feature in reader.spec.features]

    updates = tf.data.Dataset.range(first_update, first_update + num_updates)
    leading = (micro_batches_per_update, micro_batch_size)
    return _mapped(updates, reader.spec, leading, read_update, reader_threads, prefetch)


def evaluation_dataset(reader: SampleReader, *, batch_size: int, pad_last: bool = False) -> tf.data.Dataset:
    """Return every sample once, in the files' order.

    Args:
        pad_last: whether to keep the shape static by filling the last batch with repetitions of the last sample, whose
            outputs the caller must ignore.

    Returns:
        A data set of dicts: name → ``(N, L)``; without ``pad_last`` the last N may be smaller.
    """
    assert batch_size > 0
    count = reader.count

    def read_batch(number: int) -> List[np.ndarray]:
        requested = np.arange(number * batch_size, (number + 1) * batch_size, dtype=np.int64)
        batch = reader.read(np.minimum(requested, count - 1) if pad_last else requested[requested < count])
        return [batch[feature.name] for feature in reader.spec.features]

    static = pad_last or count % batch_size == 0
    numbers = tf.data.Dataset.range(-(-count // batch_size))
    leading = (batch_size if static else None,)
    return _mapped(numbers, reader.spec, leading, read_batch)


def identify_samples(reader: SampleReader) -> str:
    """Return a SHA-256 of the number of samples, their features, and some samples spread over the data set.

    It does not depend on the location of the data. Data made with another seed, vocabulary or text has another
    identity; data in which only single samples were changed may have the same one. What another model computed does
    not count, because another machine computes it with other rounding.
    """
    features = [(feature.name, feature.length, feature.dtype) for feature in reader.spec.features]
    digest = hashlib.sha256(repr((reader.count, features)).encode("utf-8"))
    indices = np.unique(np.linspace(0, reader.count - 1, _IDENTIFYING_SAMPLES).astype(np.int64))
    batch = reader.read(indices)
    for feature in reader.spec.features:
        if feature.kind == COMPUTED:
            continue
        values = np.ascontiguousarray(batch[feature.name])
        digest.update(values.astype(values.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()


@contextmanager
def raise_data_errors(reader: SampleReader) -> Iterator[None]:
    """Raise the reader's own ``UserError`` instead of TensorFlow's error while reading.

    TensorFlow passes on only the text of an exception in the reader's threads; this recovers the exception from the
    reader's ``failures``, if it has any.
    """
    try:
        yield
    except tf.errors.OpError as error:
        text = str(error)
        for failure in tuple(getattr(reader, "failures", ())):
            if str(failure) in text:
                raise failure from None
        raise


def _mapped(
    numbers: tf.data.Dataset,
    spec: FeatureSpec,
    leading: Tuple[Optional[int], ...],
    read: Callable[[int], List[np.ndarray]],
    reader_threads: int = 2,
    prefetch: int = 2,
) -> tf.data.Dataset:
    """Map ``read`` over numbers, several at a time and in order, with static shapes for the compiler."""
    types = [tf.as_dtype(feature.dtype) for feature in spec.features]

    @tf.autograph.experimental.do_not_convert
    def element(number: tf.Tensor) -> Dict[str, tf.Tensor]:
        arrays = tf.numpy_function(lambda value: read(int(value)), [number], types)
        return {
            feature.name: tf.ensure_shape(array, (*leading, feature.length))
            for feature, array in zip(spec.features, arrays)
        }

    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    # There is nothing to tune, and the tuning thread often misses its signal to stop: dropping an iterator then waits
    # for the thread's next round, up to a minute at the end of a run.
    if hasattr(options, "autotune"):
        options.autotune.enabled = False
    else:  # before TensorFlow 2.7; Graphcore's is 2.6
        options.experimental_optimization.autotune = False
    dataset = numbers.map(element, num_parallel_calls=reader_threads, deterministic=True)
    return dataset.prefetch(prefetch).with_options(options)
