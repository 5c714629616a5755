"""Makes the arrays of packs from the arrays of their sequences, for pre-training and fine-tuning.

Shapes: R sequences, M packs, T sequences in all packs, L length of an unpacked sequence with its padding,
    Q its masked positions with padding, S max_seq_length, P max_predictions_per_pack, N max_sequences_per_pack.

Source: arXiv 2107.02027, section 3.2 (what packing has to change for BERT).
"""

from __future__ import annotations

import itertools
from typing import Dict, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from data_utils.records.features import (
    ANY_VOCABULARY,
    PER_TOKEN,
    POSITION_IDS,
    SEQUENCE_IDS,
    TOKEN_INDEX,
    TOKEN_POSITIONS,
    WEIGHTS,
    Feature,
    FeatureSpec,
    packed_pretraining_features,
)
from data_utils.records.validation import is_one_sequence

_MASKED = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")


class PackLayout(NamedTuple):
    """The position of each sequence in its pack; all arrays are int64 (T,), one pack after another."""

    packs: np.ndarray
    slots: np.ndarray  # number of the sequence in its pack, from 0
    lengths: np.ndarray
    starts: np.ndarray  # position of its first token in the pack
    count: int  # type: ignore[assignment]  # M

    def tokens(self, columns: int) -> Tuple[np.ndarray, ...]:
        """Return the sequence and the column of every real token that lies within the first ``columns`` columns."""
        return np.nonzero(np.arange(columns) < self.lengths[:, None])


def sequence_lengths(input_mask: np.ndarray) -> np.ndarray:
    """Return the number of real tokens of each sequence in ``input_mask`` (R, L), int64 (R,).

    A sequence that is empty, or has padding between its tokens, is a ``ValueError``.
    """
    good = is_one_sequence(input_mask)
    if not good.all():
        raise ValueError(f"sequence {np.argmin(good)} has an input_mask that is not ones followed by zeros")
    return np.asarray(input_mask).sum(axis=1)


def lay_out(lengths: np.ndarray, sizes: np.ndarray) -> PackLayout:
    """Place sequences of ``lengths`` (T,) one after the other in packs, which have ``sizes`` (M,) sequences each."""
    packs = np.repeat(np.arange(len(sizes)), sizes)
    first = (np.cumsum(sizes) - sizes)[packs]  # (T,) the first sequence of the same pack
    lengths = np.asarray(lengths, np.int64)
    before = np.cumsum(lengths) - lengths
    return PackLayout(packs, np.arange(packs.size) - first, lengths, before - before[first], len(sizes))


def merge(spec: FeatureSpec, samples: Mapping[str, np.ndarray], layout: PackLayout) -> Dict[str, np.ndarray]:
    """Return the arrays of packs.

    Args:
        spec: the packs' features. One with a number for each sequence is filled by its kind: positions are those of the
            sequences' [CLS], weights are 1, labels are copied, and a position to be predicted is counted in the pack.
        samples: the arrays of the sequences, (T, L), (T, Q) or (T, 1), in the order of the layout.
    """
    amounts = (np.asarray(samples["masked_lm_weights"]) > 0).sum(axis=1) if _MASKED[0] in samples else None
    batch = {}
    for feature in spec.features:
        if feature.name in _MASKED and amounts is not None:
            values = _masked_tokens(feature, samples, layout, amounts)
        elif feature.kind in PER_TOKEN:
            values = _scatter_tokens(layout, _token_values(feature, samples, layout), feature.length)
        else:
            values = _scatter_sequences(layout, _sequence_values(feature, samples, layout), feature.length)
        batch[feature.name] = values.astype(feature.dtype, copy=False)
    return batch


def _token_values(feature: Feature, samples: Mapping[str, np.ndarray], layout: PackLayout) -> np.ndarray:
    shape = np.shape(samples["input_ids"])
    if feature.kind == SEQUENCE_IDS:
        return np.broadcast_to(layout.slots[:, None] + 1, shape)
    if feature.kind == POSITION_IDS:
        return np.broadcast_to(np.arange(shape[1]), shape)
    return np.asarray(samples[feature.name])


def _sequence_values(feature: Feature, samples: Mapping[str, np.ndarray], layout: PackLayout) -> np.ndarray:
    """Return the values of a feature for each sequence, (T,), or (T, C) if it has C of them."""
    if feature.kind == WEIGHTS:
        return np.ones(layout.packs.size, np.float32)
    if feature.kind == TOKEN_POSITIONS:  # of each sequence's [CLS]
        return layout.starts
    values = np.asarray(samples[feature.name])
    return layout.starts[:, None] + values if feature.kind == TOKEN_INDEX else values


def _scatter_tokens(layout: PackLayout, values: np.ndarray, max_seq_length: int) -> np.ndarray:
    """Return (M, S) from values of tokens (T, L); values after a sequence's last token are ignored, padding is 0."""
    sequence, column = layout.tokens(values.shape[1])
    packed = np.zeros((layout.count, max_seq_length), values.dtype)
    packed[layout.packs[sequence], layout.starts[sequence] + column] = values[sequence, column]
    return packed


def _scatter_sequences(layout: PackLayout, values: np.ndarray, length: int) -> np.ndarray:
    """Return (M, N·C), N·C = ``length``, from (T, C) or (T,); values are 0 if a pack has fewer than N sequences."""
    values = values.reshape(len(values), -1)
    packed = np.zeros((layout.count, length // values.shape[1], values.shape[1]), values.dtype)
    packed[layout.packs, layout.slots] = values
    return packed.reshape(layout.count, length)


def _masked_tokens(
    feature: Feature, samples: Mapping[str, np.ndarray], layout: PackLayout, amounts: np.ndarray
) -> np.ndarray:
    """Return a feature of the ``amounts`` (T,) of masked positions that have a weight, without gaps, (M, P)."""
    sequence, column = np.nonzero(np.asarray(samples["masked_lm_weights"]) > 0)
    first = np.arange(amounts.size) - layout.slots
    place = np.arange(sequence.size) - (np.cumsum(amounts) - amounts)[first][sequence]
    values = np.asarray(samples[feature.name])[sequence, column]
    if feature.kind == TOKEN_POSITIONS:
        values = values + layout.starts[sequence]
    packed = np.zeros((layout.count, feature.length), values.dtype)
    packed[layout.packs[sequence], place] = values
    return packed


def pack_arrays(
    batch: Mapping[str, np.ndarray],
    packs: Sequence[Sequence[int]],
    max_seq_length: int,
    max_predictions_per_pack: int,
    max_sequences_per_pack: int,
) -> Dict[str, np.ndarray]:
    """Make packs of pre-training records.

    Args:
        batch: the features of pre-training records: ``input_ids input_mask segment_ids`` (R, L),
            ``masked_lm_positions masked_lm_ids masked_lm_weights`` (R, Q), ``next_sentence_labels`` (R, 1).
            A masked position counts if its weight is above 0.
        packs: for each of M packs, the rows of ``batch`` in it, in their order in the pack.

    Returns:
        int32, weights float32:

        - ``input_ids segment_ids`` (M, S); padding is 0.
        - ``input_mask`` (M, S): 1, 2, … N, the number of the sequence that a token belongs to; 0 for padding.
        - ``position_ids`` (M, S): 0, 1, …, starting again with each sequence.
        - ``masked_lm_positions`` (in the pack), ``masked_lm_ids``, ``masked_lm_weights`` (M, P): those of all
          sequences without gaps, then zeros.
        - ``next_sentence_positions`` (of each sequence's [CLS]), ``next_sentence_labels``,
          ``next_sentence_weights`` (M, N): weight 1 for a sequence, 0 for a slot without one.

    It is a ``ValueError`` if a pack has more tokens, masked positions or sequences than it may.
    """
    rows = np.array(list(itertools.chain.from_iterable(packs)), np.int64)
    samples = {name: np.asarray(values)[rows] for name, values in batch.items()}
    layout = lay_out(sequence_lengths(batch["input_mask"])[rows], np.array(list(map(len, packs)), np.int64))
    masked = (samples["masked_lm_weights"] > 0).sum(axis=1)
    _check_limit("tokens", np.bincount(layout.packs, layout.lengths, layout.count), max_seq_length)
    _check_limit("sequences", np.bincount(layout.packs, minlength=layout.count), max_sequences_per_pack)
    _check_limit("masked positions", np.bincount(layout.packs, masked, layout.count), max_predictions_per_pack)
    sizes = max_seq_length, max_predictions_per_pack, max_sequences_per_pack
    return merge(packed_pretraining_features(*sizes, ANY_VOCABULARY), samples, layout)


def _check_limit(what: str, amounts: np.ndarray, limit: int) -> None:
    if amounts.size and amounts.max() > limit:
        pack = int(np.argmax(amounts))
        raise ValueError(f"pack {pack} has {int(amounts[pack])} {what}, more than the limit of {limit}")
