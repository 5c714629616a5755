"""The weights of an exported model: complete, as many rows as the vocabulary has pieces, PyTorch's names."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence, Set

import numpy as np

from checkpoints.export.heads import ENCODER, Head, head_of
from checkpoints.pretrained.completion import TRANSFORM, is_transform
from checkpoints.pretrained.names import VOCABULARY_SIZED, WORD_BIAS, WORD_TABLE
from checkpoints.pretrained.pretrained import Pretrained, resized
from checkpoints.pretrained.settings import pieces_of
from checkpoints.pretrained.sketch import encoder_names
from model.architecture import TASKS
from utilities.errors import UserError


class Exported(NamedTuple):
    """What is written.

    Attributes:
        arrays: by PyTorch's names.
        rows: of the word table.
        head: Hugging Face's class.
        notes: what a user of the model should know of them.
    """

    arrays: Dict[str, np.ndarray]
    rows: int
    head: Head
    notes: List[str]


def exported_arrays(start: Pretrained, vocabulary: Optional[Path], encoder_only: bool, key: str) -> Exported:
    """The arrays of a checkpoint for Hugging Face's PyTorch class.

    Args:
        start: the checkpoint.
        vocabulary: its ``vocab.txt``, if it has one. The tables of a model of this project are cut to its pieces; other
            models keep theirs as they are.
        encoder_only: leave out the heads.
        key: flag that named the checkpoint.

    Raises:
        UserError: the checkpoint is not complete, cannot be read, or does not belong to the vocabulary.
    """
    weights = {**start.stand_ins, **start.weights}
    if encoder_only:
        weights = {name: weight for name, weight in weights.items() if name.startswith("bert.")}
    head = head_of(weights, classes_of(start))
    _refuse_incomplete(start, set(weights), key)
    notes = _notes(start, set(weights))
    rows = _rows(start, vocabulary, key)
    if rows != weights[WORD_TABLE].shape[0]:
        notes.append(
            f"The word table had {weights[WORD_TABLE].shape[0]:,} rows in training, of which {rows:,} stand for word"
            " pieces; the others, which padded it, are left out."
        )
    arrays = {}
    for name, weight in weights.items():
        sized = name in VOCABULARY_SIZED
        value = resized(weight, rows, vocabulary, f"{key}: {start.origin}") if sized else weight.value()
        arrays[_pytorch_name(name, head)] = np.ascontiguousarray(value)
    return Exported(arrays, rows, head, notes)


def classes_of(start: Pretrained) -> Sequence[str]:
    """Return Hugging Face's classes that a checkpoint names."""
    facts = TASKS.get(start.settings.get("task", "")) if start.own else None
    return [facts.hugging_face] if facts else start.settings.get("architectures") or ()


def _rows(start: Pretrained, vocabulary: Optional[Path], key: str) -> int:
    """Rows of the word table that are written."""
    rows = start.weights[WORD_TABLE].shape[0]
    pieces = rows if vocabulary is None else pieces_of(vocabulary)
    if pieces > rows:
        raise UserError(
            f"{vocabulary} has {pieces:,} word pieces, but {start.origin} only {rows:,} rows for them; name the"
            " vocabulary of the training data with --vocab-file"
        )
    return pieces if start.own else rows


def _refuse_incomplete(start: Pretrained, names: Set[str], key: str) -> None:
    missing = sorted(encoder_names(start.architecture["num_hidden_layers"]) - names)
    if missing:
        raise UserError(f"{key}: {start.origin} lacks {missing[0]}; name a complete checkpoint")
    if start.own and WORD_BIAS in names and f"{TRANSFORM}.dense.weight" not in names:
        raise UserError(
            f"{key}: {start.origin} was trained without use_cls_layer, and its last LayerNorm has a scale of nearly 0,"
            " so Hugging Face's masked-LM head cannot express it; add --encoder-only to write the model without heads"
        )


def _notes(start: Pretrained, names: Set[str]) -> List[str]:
    """What was written that was not trained."""
    supplied = [name for name in start.stand_ins if name in names]
    biases = sum(not is_transform(name) for name in supplied)
    notes = []
    if biases:
        notes.append(f"The model was trained without {biases} of BERT's biases; they are written as zeros.")
    if len(supplied) > biases:
        notes.append(
            "The model was trained without the layer before the masked-LM product (`cls.predictions.transform`). It is"
            " written so that it gives back what comes out of the last LayerNorm, to the precision of float32: in half"
            " precision it does not."
        )
    return notes


def _pytorch_name(name: str, head: Head) -> str:
    """A model without a head is saved without the prefix ``bert.``."""
    return name[len("bert.") :] if head is ENCODER else name
