"""Makes the arrays of packs from the arrays of their sequences.

Shapes: R sequences, M packs, T sequences in all packs, L length of an unpacked sequence with its padding,
    Q its masked positions with padding, S max_seq_length, P max_predictions_per_pack, N max_sequences_per_pack.

Source: arXiv 2107.02027, section 3.2 (what packing has to change for BERT).
"""

from __future__ import annotations

from typing import Dict, Mapping, NamedTuple, Sequence, Tuple

import numpy as np


class Layout(NamedTuple):
    """The position of each sequence in its pack; all arrays are int64 (T,), one pack after another.

    Attributes:
        rows: number of the sequence.
        packs: number of its pack.
        slots: number of the sequence in its pack, from 0.
        lengths: number of its tokens.
        starts: position of its first token in the pack.
    """

    rows: np.ndarray
    packs: np.ndarray
    slots: np.ndarray
    lengths: np.ndarray
    starts: np.ndarray

    def tokens(self, columns: int) -> Tuple[np.ndarray, np.ndarray]:
        """Return the sequence and the column of every real token that lies within the first ``columns`` columns."""
        sequences, slots = np.nonzero(np.arange(columns) < self.lengths[:, None])
        return sequences, slots


def is_one_sequence(input_mask: np.ndarray) -> np.ndarray:
    """Return whether each row of ``input_mask`` (R, L) is one or more ones followed by zeros, bool (R,)."""
    mask = np.asarray(input_mask)
    lengths = (mask == 1).sum(axis=1)
    return (mask == (np.arange(mask.shape[1]) < lengths[:, None])).all(axis=1) & (lengths > 0)


def sequence_lengths(input_mask: np.ndarray) -> np.ndarray:
    """Return the number of real tokens of each sequence in ``input_mask`` (R, L), int64 (R,).

    Raises:
        ValueError: a sequence is empty, or has padding between its tokens.
    """
    good = is_one_sequence(input_mask)
    if not good.all():
        raise ValueError(f"sequence {np.argmin(good)} has an input_mask that is not ones followed by zeros")
    return np.asarray(input_mask).sum(axis=1)


def lay_out(lengths: np.ndarray, packs: Sequence[Sequence[int]]) -> Layout:
    """Place the sequences of each pack, given as rows of ``lengths`` (R,), one after the other."""
    sizes = np.array([len(pack) for pack in packs], np.int64)
    rows = np.array([row for pack in packs for row in pack], np.int64)
    pack = np.repeat(np.arange(len(packs)), sizes)
    first = (np.cumsum(sizes) - sizes)[pack]
    own_lengths = np.asarray(lengths, np.int64)[rows]
    return Layout(rows, pack, np.arange(rows.size) - first, own_lengths, _sum_before(own_lengths, first))


def _sum_before(amounts: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Return, for each sequence, the sum of the amounts before it in its pack, which begins at ``first``; all (T,)."""
    before = np.cumsum(amounts) - amounts
    return before - before[first] if before.size else before


def scatter_tokens(layout: Layout, values: np.ndarray, packs: int, max_seq_length: int) -> np.ndarray:
    """Return (M, S) from values of tokens (T, L); values after a sequence's last token are ignored, padding is 0."""
    sequence, column = layout.tokens(values.shape[1])
    packed = np.zeros((packs, max_seq_length), values.dtype)
    packed[layout.packs[sequence], layout.starts[sequence] + column] = values[sequence, column]
    return packed


def scatter_sequences(layout: Layout, values: np.ndarray, packs: int, length: int) -> np.ndarray:
    """Return (M, N·C), N·C = ``length``, from C values for each sequence, (T, C), or from one, (T,).

    The values are 0 if a pack has fewer than N sequences.
    """
    values = values.reshape(len(values), -1)
    packed = np.zeros((packs, length // values.shape[1], values.shape[1]), values.dtype)
    packed[layout.packs, layout.slots] = values
    return packed.reshape(packs, length)


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

    Raises:
        ValueError: a pack has more tokens, masked positions or sequences than it may.
    """
    layout = lay_out(sequence_lengths(batch["input_mask"]), packs)
    count, columns = len(packs), np.shape(batch["input_mask"])[1]
    _check_limit("tokens", np.bincount(layout.packs, layout.lengths, count), max_seq_length)
    _check_limit("sequences", np.bincount(layout.packs, minlength=count), max_sequences_per_pack)

    shape = (layout.rows.size, columns)
    tokens = {
        "input_ids": np.asarray(batch["input_ids"], np.int32)[layout.rows],
        "segment_ids": np.asarray(batch["segment_ids"], np.int32)[layout.rows],
        "input_mask": np.broadcast_to(layout.slots.astype(np.int32)[:, None] + 1, shape),
        "position_ids": np.broadcast_to(np.arange(columns, dtype=np.int32), shape),
    }
    packed = {name: scatter_tokens(layout, values, count, max_seq_length) for name, values in tokens.items()}
    packed.update(_masked_tokens(layout, batch, count, max_predictions_per_pack))
    sequences = {
        "next_sentence_positions": layout.starts.astype(np.int32),
        "next_sentence_labels": np.asarray(batch["next_sentence_labels"], np.int32)[layout.rows, 0],
        "next_sentence_weights": np.ones(layout.rows.size, np.float32),
    }
    for name, values in sequences.items():
        packed[name] = scatter_sequences(layout, values, count, max_sequences_per_pack)
    return packed


def _masked_tokens(layout: Layout, batch: Mapping[str, np.ndarray], packs: int, limit: int) -> Dict[str, np.ndarray]:
    """Return the masked positions of all sequences of each pack, shifted to their tokens' new positions; (M, P)."""
    weights = np.asarray(batch["masked_lm_weights"], np.float32)[layout.rows]  # (T, Q)
    real = weights > 0
    amounts = real.sum(axis=1)
    _check_limit("masked positions", np.bincount(layout.packs, amounts, packs), limit)
    before = _sum_before(amounts, np.arange(amounts.size) - layout.slots)
    sequence, column = np.nonzero(real)
    source = layout.rows[sequence], column
    target = layout.packs[sequence], before[sequence] + np.cumsum(real, axis=1)[sequence, column] - 1
    values = {
        "masked_lm_positions": np.asarray(batch["masked_lm_positions"], np.int32)[source] + layout.starts[sequence],
        "masked_lm_ids": np.asarray(batch["masked_lm_ids"], np.int32)[source],
        "masked_lm_weights": weights[real],
    }
    packed = {}
    for name, flat in values.items():
        packed[name] = np.zeros((packs, limit), np.float32 if name == "masked_lm_weights" else np.int32)
        packed[name][target] = flat
    return packed


def _check_limit(what: str, amounts: np.ndarray, limit: int) -> None:
    if amounts.size and amounts.max() > limit:
        pack = int(np.argmax(amounts))
        raise ValueError(f"pack {pack} has {int(amounts[pack])} {what}, more than the limit of {limit}")
