"""Several pre-training sequences in one: the arrays of a pack from the arrays of its sequences.

Shapes: R sequences, M packs, T sequences in all packs, L length of an unpacked sequence with its padding,
    Q its masked positions with padding, S max_seq_length, P max_predictions_per_pack, N max_sequences_per_pack.

Source: arXiv 2107.02027, section 3.2 (what packing has to change for BERT).
"""

from __future__ import annotations

from typing import Dict, Mapping, NamedTuple, Sequence

import numpy as np

COPIED_FEATURES = ("input_ids", "segment_ids")  # copied token by token


class Layout(NamedTuple):
    """Where each sequence lies in its pack; all arrays int64 ``(T,)``, pack after pack.

    Attributes:
        rows: the sequence.
        packs: its pack.
        places: its place among the pack's sequences, from 0.
        lengths: its tokens.
        starts: where in the pack its first token is.
    """

    rows: np.ndarray
    packs: np.ndarray
    places: np.ndarray
    lengths: np.ndarray
    starts: np.ndarray


def sequence_lengths(input_mask: np.ndarray) -> np.ndarray:
    """Real tokens of each sequence.

    Args:
        input_mask: ``(R, L)``, 1 for a token and 0 for padding.

    Returns:
        int64 ``(R,)``.

    Raises:
        ValueError: a sequence is empty, or has padding between its tokens; names the first such.
    """
    real = np.asarray(input_mask) == 1
    lengths = real.sum(axis=1)
    columns = np.arange(real.shape[1])
    wrong = (
        (real != (columns < lengths[:, None])).any(axis=1) | (lengths == 0) | (real != (input_mask != 0)).any(axis=1)
    )
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(f"sequence {row} has an input_mask that is not ones followed by zeros")
    return lengths


def lay_out(lengths: np.ndarray, packs: Sequence[Sequence[int]]) -> Layout:
    """Puts the sequences of each pack one behind the other.

    Args:
        lengths: ``(R,)`` tokens of each sequence.
        packs: the sequences of each pack, as rows of ``lengths``.
    """
    sizes = np.array([len(pack) for pack in packs], np.int64)
    rows = np.array([row for pack in packs for row in pack], np.int64)
    pack = np.repeat(np.arange(len(packs)), sizes)
    first = (np.cumsum(sizes) - sizes)[pack]
    long = np.asarray(lengths, np.int64)[rows]
    return Layout(rows, pack, np.arange(rows.size) - first, long, offsets_in_pack(long, first))


def offsets_in_pack(amounts: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Sum of the amounts of the same pack that come before each.

    Args:
        amounts: ``(T,)``.
        first: ``(T,)``, index of the first entry of the same pack.
    """
    before = np.cumsum(amounts) - amounts
    return before - before[first] if before.size else before


def scatter_tokens(layout: Layout, values: np.ndarray, packs: int, max_seq_length: int) -> np.ndarray:
    """One value a token, from sequences to packs; padding is 0.

    Args:
        layout: from :func:`lay_out`.
        values: ``(T, L)``, what each token of the sequences in ``layout`` has; what lies behind them is ignored.
        packs: M.
        max_seq_length: S.

    Returns:
        ``(M, S)`` of the type of ``values``.
    """
    sequence, column = np.nonzero(np.arange(values.shape[1]) < layout.lengths[:, None])  # every real token
    packed = np.zeros((packs, max_seq_length), values.dtype)
    packed[layout.packs[sequence], layout.starts[sequence] + column] = values[sequence, column]
    return packed


def pack_arrays(
    batch: Mapping[str, np.ndarray],
    packs: Sequence[Sequence[int]],
    max_seq_length: int,
    max_predictions_per_pack: int,
    max_sequences_per_pack: int,
) -> Dict[str, np.ndarray]:
    """Packed records from pre-training records.

    Args:
        batch: the features of pre-training records: ``input_ids input_mask segment_ids`` ``(R, L)``,
            ``masked_lm_positions masked_lm_ids masked_lm_weights`` ``(R, Q)``, ``next_sentence_labels`` ``(R, 1)``.
            A masked position counts where its weight is above 0.
        packs: M times the rows of ``batch`` that share a pack, in the order in which they are to lie there.
        max_seq_length: S.
        max_predictions_per_pack: P.
        max_sequences_per_pack: N.

    Returns:
        int32, weights float32:

        - ``input_ids segment_ids`` ``(M, S)``; padding is 0.
        - ``input_mask`` ``(M, S)``: 1, 2, … N, the number of the sequence that a token belongs to; 0 for padding.
        - ``position_ids`` ``(M, S)``: 0, 1, … anew for each sequence.
        - ``masked_lm_positions`` (in the pack), ``masked_lm_ids``, ``masked_lm_weights`` ``(M, P)``: those of all
          sequences without gaps, then zeros.
        - ``next_sentence_positions`` (of each sequence's [CLS]), ``next_sentence_labels``,
          ``next_sentence_weights`` ``(M, N)``: weight 1 for a sequence, 0 where the pack has fewer.

    Raises:
        ValueError: a pack has more tokens, masked positions or sequences than it may.
    """
    layout = lay_out(sequence_lengths(batch["input_mask"]), packs)
    count = len(packs)
    _check_room("tokens", np.bincount(layout.packs, layout.lengths, count), max_seq_length)
    _check_room("sequences", np.bincount(layout.packs, minlength=count), max_sequences_per_pack)

    values = {name: np.asarray(batch[name], np.int32)[layout.rows] for name in COPIED_FEATURES}
    shape = (layout.rows.size, np.shape(batch["input_mask"])[1])
    values["input_mask"] = np.broadcast_to(layout.places.astype(np.int32)[:, None] + 1, shape)
    values["position_ids"] = np.broadcast_to(np.arange(shape[1], dtype=np.int32), shape)
    packed = {name: scatter_tokens(layout, value, count, max_seq_length) for name, value in values.items()}
    packed.update(_masked_tokens(layout, batch, count, max_predictions_per_pack))
    packed.update(_next_sentence(layout, batch, count, max_sequences_per_pack))
    return packed


def merge_sequences(
    sequences: Sequence[Mapping[str, np.ndarray]],
    max_seq_length: int,
    max_predictions_per_pack: int,
    max_sequences_per_pack: int,
) -> Dict[str, np.ndarray]:
    """One pack of the given sequences, as :func:`pack_arrays` makes it, without the axis of packs.

    Args:
        sequences: features of one record each: ``(L,)``, ``(Q,)``, ``(1,)``; L and Q the same for all.
        max_seq_length, max_predictions_per_pack, max_sequences_per_pack: as in :func:`pack_arrays`.

    Example:
        >>> sequence = {"input_ids": [5, 6, 7], "input_mask": [1, 1, 0], "segment_ids": [0, 0, 0],
        ...             "masked_lm_positions": [1], "masked_lm_ids": [9], "masked_lm_weights": [1.0],
        ...             "next_sentence_labels": [1]}
        >>> merge_sequences([sequence, sequence], 5, 3, 2)["input_mask"]
        array([1, 1, 2, 2, 0], dtype=int32)
    """
    batch = {name: np.stack([np.asarray(sequence[name]) for sequence in sequences]) for name in sequences[0]}
    packed = pack_arrays(
        batch, [range(len(sequences))], max_seq_length, max_predictions_per_pack, max_sequences_per_pack
    )
    return {name: values[0] for name, values in packed.items()}


def _masked_tokens(layout: Layout, batch: Mapping[str, np.ndarray], packs: int, room: int) -> Dict[str, np.ndarray]:
    """The masked positions of all sequences of a pack, moved to where their tokens now are."""
    weights = np.asarray(batch["masked_lm_weights"], np.float32)[layout.rows]  # (T, Q)
    real = weights > 0
    amounts = real.sum(axis=1)
    _check_room("masked positions", np.bincount(layout.packs, amounts, packs), room)
    before = offsets_in_pack(amounts, np.arange(amounts.size) - layout.places)
    sequence, column = np.nonzero(real)
    source = layout.rows[sequence], column
    target = layout.packs[sequence], before[sequence] + np.cumsum(real, axis=1)[sequence, column] - 1
    packed = {
        "masked_lm_positions": np.zeros((packs, room), np.int32),
        "masked_lm_ids": np.zeros((packs, room), np.int32),
        "masked_lm_weights": np.zeros((packs, room), np.float32),
    }
    packed["masked_lm_positions"][target] = np.asarray(batch["masked_lm_positions"])[source] + layout.starts[sequence]
    packed["masked_lm_ids"][target] = np.asarray(batch["masked_lm_ids"])[source]
    packed["masked_lm_weights"][target] = weights[real]
    return packed


def _next_sentence(layout: Layout, batch: Mapping[str, np.ndarray], packs: int, room: int) -> Dict[str, np.ndarray]:
    """Where each sequence's [CLS] is, and its label; weight 0 for places that no sequence fills."""
    packed = {
        "next_sentence_positions": np.zeros((packs, room), np.int32),
        "next_sentence_labels": np.zeros((packs, room), np.int32),
        "next_sentence_weights": np.zeros((packs, room), np.float32),
    }
    target = layout.packs, layout.places
    packed["next_sentence_positions"][target] = layout.starts
    packed["next_sentence_labels"][target] = np.asarray(batch["next_sentence_labels"])[layout.rows, 0]
    packed["next_sentence_weights"][target] = 1
    return packed


def _check_room(what: str, amounts: np.ndarray, room: int) -> None:
    if amounts.size and amounts.max() > room:
        pack = int(np.argmax(amounts))
        raise ValueError(f"pack {pack} has {int(amounts[pack])} {what}, and room for {room}")
