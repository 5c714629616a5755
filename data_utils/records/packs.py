"""Packs as samples: how many sequences they hold, and random ones for throughput runs.

S tokens of a pack · N sequences in a pack at most · P masked positions in a pack at most
"""

from __future__ import annotations

import numpy as np

from data_utils.packing.merge import pack_arrays
from data_utils.records.arrays import ArrayReader
from data_utils.records.features import packed_pretraining_features, pretraining_features
from data_utils.records.generated import POOL_SAMPLES, GeneratedReader
from data_utils.records.pipeline import SampleReader

_COUNTED = 4096  # packs read where no manifest tells: the mean is right to about 1 %


def sequences_per_pack(reader: SampleReader) -> float:
    """The packing factor of a data set: sequences in a pack on average.

    As the reader itself or the manifest says; where neither does, of packs spread evenly over the data set.
    """
    samples = getattr(reader, "samples", None)
    if samples is not None:
        return samples / reader.count
    manifest = getattr(reader, "manifest", None)
    sequences = manifest.totals.get("sequences") if manifest is not None else None
    if sequences is not None:
        return sequences / reader.count
    chosen = np.linspace(0, reader.count - 1, min(reader.count, _COUNTED)).astype(np.int64)
    return float(reader.read(chosen)["next_sentence_weights"].sum() / len(chosen))


def generated_packs(
    max_seq_length: int,
    max_predictions_per_pack: int,
    max_sequences_per_pack: int,
    vocab_size: int,
    seed: int,
    count: int = POOL_SAMPLES,
) -> ArrayReader:
    """Random full packs, each of N sequences of about equal length; see :class:`GeneratedReader` for what is in them.

    Args:
        max_seq_length: S, at least 3 tokens for each sequence.
        max_predictions_per_pack: P.
        max_sequences_per_pack: N.
        vocab_size: rows of the model's embedding table.
        seed: decides the packs.
        count: packs in an epoch.
    """
    places = max_sequences_per_pack
    shortest, longer = divmod(max_seq_length, places)  # the first sequences have one token more
    masked = max(1, min(max_predictions_per_pack // places, shortest - 2))
    spec = pretraining_features(shortest + 1, masked, vocab_size)
    sequences = GeneratedReader(spec, seed, count * places).read(np.arange(count * places))
    lengths = shortest + (np.arange(count * places) % places < longer)
    sequences["input_mask"] = (np.arange(shortest + 1) < lengths[:, None]).astype(np.int32)
    sequences["masked_lm_positions"] = np.minimum(sequences["masked_lm_positions"], shortest - 1)
    rows = np.arange(count * places).reshape(count, places).tolist()
    packs = pack_arrays(sequences, rows, max_seq_length, max_predictions_per_pack, places)
    return ArrayReader(packed_pretraining_features(max_seq_length, max_predictions_per_pack, places, vocab_size), packs)
