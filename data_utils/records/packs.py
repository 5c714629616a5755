"""Puts several samples of a task into one row of the batch, and splits a model's outputs by sample again.

A sample is one sequence, or K texts that are a sequence each and stay together.

W sequences · M packs · N sequences in a pack at most · S tokens of a pack · P masked positions in a pack at most
"""

from __future__ import annotations

from typing import Callable, Dict, Mapping, Optional, Tuple

import numpy as np

from data_utils.packing.assignment import Packs, fill_packs, given_packs, histogram
from data_utils.packing.merge import PackLayout, lay_out, merge, pack_arrays
from data_utils.packing.plan import plan_packing
from data_utils.records.arrays import POOL_SAMPLES, ArrayReader, GeneratedReader
from data_utils.records.features import (
    SHORTEST_SAMPLE,
    FeatureSpec,
    in_packs,
    packed_pretraining_features,
    pretraining_features,
)
from data_utils.records.pipeline import SampleReader

_COUNTED = 4096  # packs that are read if no manifest has the number; the mean is accurate to about 1 %


class PackReader:
    """Reads samples of another reader and merges them into packs.

    ``samples`` reads one padded sequence in each row, ``lengths`` are its tokens, ``(W,)``.
    """

    def __init__(
        self, spec: FeatureSpec, samples: SampleReader, lengths: np.ndarray, packs: Packs, texts: int = 1
    ) -> None:
        self.spec, self.count, self.samples = spec, packs.number, samples.count // texts
        self._reader, self._lengths, self._packs, self._texts = samples, lengths, packs, texts

    def read(self, positions: np.ndarray) -> Dict[str, np.ndarray]:
        """Return the packs at these positions, name → ``(len(positions), S or N)``.

        They have the tokens of one sample after another, ``input_mask`` with 1, 2, … for the samples of a pack and 0
        for padding, ``position_ids`` restarting with each; and one number for each sample, 0 where a pack has fewer
        than N.
        """
        rows, layout = self._lay_out(np.asarray(positions))
        return merge(self.spec, self._reader.read(rows), layout)

    def _lay_out(self, positions: np.ndarray) -> Tuple[np.ndarray, PackLayout]:
        """Return the sequences of the packs at these positions, and their places."""
        chosen, sizes = self._packs.select(positions)
        rows = (chosen[:, None] * self._texts + np.arange(self._texts)).ravel()
        return rows, lay_out(self._lengths[rows], sizes * self._texts)

    def unpack_outputs(self, values: np.ndarray) -> np.ndarray:
        """Return a model's outputs for each sequence, ``(W, …)`` from ``(M, N, …)`` if it reads the [CLS] of each,
        otherwise ``(W, S, …)``, 0 after the end of a sequence, from ``(M, S, …)``.
        """
        rows, layout = self._lay_out(np.arange(self.count))
        if "cls_positions" in self.spec.shapes:
            given = np.empty((len(self._lengths), *values.shape[2:]), values.dtype)
            given[rows] = values[layout.packs, layout.slots]
            return given
        given = np.zeros((len(self._lengths), *values.shape[1:]), values.dtype)
        sample, column = layout.tokens(values.shape[1])
        given[rows[sample], column] = values[layout.packs[sample], layout.starts[sample] + column]
        return given


def make_rows(
    samples: SampleReader,
    lengths: np.ndarray,
    max_sequences_per_pack: Optional[int],
    seed: int,
    cls_positions: bool = False,
    texts: int = 1,
) -> SampleReader:
    """Return a reader of the samples as rows of the batch.

    Args:
        samples: reads one sequence in each row, padded.
        lengths: ``(W,)`` tokens of each sequence.
        max_sequences_per_pack: N, a multiple of K; None gives each sequence a row of its own.
        texts: K, the number of consecutive sequences that are a sample.
    """
    if max_sequences_per_pack is None:
        return samples
    width, sample_lengths = samples.spec.features[0].length, lengths.reshape(-1, texts).sum(axis=1)
    if max_sequences_per_pack == texts > 1:
        packs = given_packs(np.arange(len(sample_lengths))[:, None])  # in the order of the data
    else:
        plan = plan_packing(histogram(sample_lengths, width), width, max_sequences_per_pack // texts)
        packs = fill_packs(plan, sample_lengths, seed)
    return PackReader(in_packs(samples.spec, max_sequences_per_pack, cls_positions), samples, lengths, packs, texts)


def outputs_by_sample(reader: SampleReader, outputs: Mapping[str, np.ndarray]) -> Dict[str, np.ndarray]:
    """Return a model's outputs for each sample from those for the reader's rows, by name."""
    arrays = {name: np.asarray(values) for name, values in outputs.items()}
    if isinstance(reader, PackReader):
        return {name: reader.unpack_outputs(values) for name, values in arrays.items()}
    return arrays


def generated_rows(
    make_features: Callable[[int], FeatureSpec],
    max_seq_length: int,
    max_sequences_per_pack: Optional[int],
    seed: int,
    cls_positions: bool = False,
    texts: int = 1,
) -> SampleReader:
    """Return random fine-tuning samples as rows of the batch; packs are full. See :func:`make_rows`."""
    if max_sequences_per_pack is None:
        return GeneratedReader(make_features(max_seq_length), seed)
    slots = max(1, min(max_sequences_per_pack, max_seq_length // SHORTEST_SAMPLE) // texts) * texts
    length = max_seq_length // slots
    packs = given_packs(np.arange(POOL_SAMPLES // slots * slots // texts).reshape(-1, slots // texts))
    samples = GeneratedReader(make_features(length), seed, packs.number * slots)
    spec = in_packs(make_features(max_seq_length), max_sequences_per_pack, cls_positions)
    return PackReader(spec, samples, np.full(samples.count, length), packs, texts)


def generated_packs(
    max_seq_length: int,
    max_predictions_per_pack: int,
    max_sequences_per_pack: int,
    vocab_size: int,
    seed: int,
    count: int = POOL_SAMPLES,
    type_vocab_size: int = 2,
) -> ArrayReader:
    """Return random full packs for pre-training, each of N sequences of about equal length, at least 3 tokens."""
    slots = max_sequences_per_pack
    shortest, longer = divmod(max_seq_length, slots)  # the first sequences have one token more
    masked = max(1, min(max_predictions_per_pack // slots, shortest - 2))
    spec = pretraining_features(shortest + 1, masked, vocab_size, type_vocab_size)
    sequences = GeneratedReader(spec, seed, count * slots).read(np.arange(count * slots))
    lengths = shortest + (np.arange(count * slots) % slots < longer)
    sequences["input_mask"] = (np.arange(shortest + 1) < lengths[:, None]).astype(np.int32)
    sequences["masked_lm_positions"] = np.minimum(sequences["masked_lm_positions"], shortest - 1)
    rows = np.arange(count * slots).reshape(count, slots).tolist()
    packs = pack_arrays(sequences, rows, max_seq_length, max_predictions_per_pack, slots)
    tables = vocab_size, type_vocab_size
    return ArrayReader(packed_pretraining_features(max_seq_length, max_predictions_per_pack, slots, *tables), packs)


def sequences_per_pack(reader: SampleReader) -> float:
    """Return the packing factor of a data set: the mean number of sequences in a row, 1 for padded rows.

    The reader or the manifest gives it; otherwise the sequences of some packs spread over the data set are counted.
    """
    if not reader.spec.packed:
        return 1
    samples = getattr(reader, "samples", None)
    if samples is not None:
        return samples / reader.count
    manifest = getattr(reader, "manifest", None)
    if manifest is not None and "sequences" in manifest.totals:
        return manifest.totals["sequences"] / reader.count
    chosen = np.linspace(0, reader.count - 1, min(reader.count, _COUNTED)).astype(np.int64)
    return float(reader.read(chosen)["next_sentence_weights"].sum() / len(chosen))
