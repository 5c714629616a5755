"""Collects all weights of an exported model by PyTorch's names, and chooses the Hugging Face class for them."""

from __future__ import annotations

from pathlib import Path
from typing import Collection, Dict, List, NamedTuple, Optional, Sequence, Set

import numpy as np

from checkpoints.pretrained.native_checkpoint import encoder_names
from checkpoints.pretrained.pretrained import Pretrained, resize_vocabulary, warn_of_other_pieces
from checkpoints.pretrained.sentence_transformers import embedding_settings
from checkpoints.pretrained.weights import (
    CLASSIFIER,
    NEXT_SENTENCE,
    SPAN_HEAD,
    TRANSFORM,
    VOCABULARY_SIZED,
    WORD_BIAS,
    WORD_TABLE,
)
from data_utils.tokenizer import read_vocabulary
from model.tasks import TASKS
from utilities.errors import UserError


class Head(NamedTuple):
    """A kind of model: Hugging Face's class, and its purpose as Hugging Face's tag."""

    model: str
    pipeline: str

    @property
    def auto(self) -> str:
        """Hugging Face's class that loads the model: ``AutoModelForMaskedLM`` for ``BertForMaskedLM``."""
        return self.model.replace("BertModel", "AutoModel").replace("BertFor", "AutoModelFor")


ENCODER = Head("BertModel", "feature-extraction")
EMBEDDING = Head("BertModel", "sentence-similarity")
MASKED_LM = Head("BertForMaskedLM", "fill-mask")
NEXT_SENTENCE_ALONE = Head("BertForNextSentencePrediction", "")
_ROOT = "bert."  # beginning of the names of an encoder's weights
_TRAINED = {entry.hugging_face: Head(entry.hugging_face, entry.pipeline) for entry in TASKS.values()}  # by class


def _choose_head(names: Collection[str], architectures: Sequence[str] = ()) -> Head:
    """Return the kind of model with these PyTorch names; the config's classes decide between heads that look alike."""
    if f"{SPAN_HEAD}.weight" in names:
        return _TRAINED["BertForQuestionAnswering"]
    if f"{CLASSIFIER}.weight" in names:
        named = next(iter(architectures), "BertForSequenceClassification")
        return _TRAINED.get(named, Head(named, ""))
    if WORD_BIAS in names:
        return _TRAINED["BertForPreTraining"] if NEXT_SENTENCE in names else MASKED_LM
    return NEXT_SENTENCE_ALONE if NEXT_SENTENCE in names else ENCODER


class Exported(NamedTuple):
    """The weights to write by PyTorch's names, the rows of the word table, and notes for users of the model."""

    arrays: Dict[str, np.ndarray]
    rows: int
    head: Head
    notes: List[str]


def exported_arrays(start: Pretrained, vocabulary: Optional[Path], encoder_only: bool) -> Exported:
    """Return the arrays of a checkpoint for Hugging Face's PyTorch class.

    Tables of a model of this project are cut to the pieces of its vocabulary; others are not changed.
    """
    weights = {**start.neutral_weights, **start.weights}
    if encoder_only:
        weights = {name: weight for name, weight in weights.items() if name.startswith(_ROOT)}
    head = _choose_head(weights, start.classes)
    if head is ENCODER and embedding_settings(start) is not None:
        head = EMBEDDING
    _refuse_incomplete(start, set(weights))
    notes = _notes(start, set(weights))
    rows, trained_rows = _rows(start, vocabulary), weights[WORD_TABLE].shape[0]
    if rows != trained_rows:
        notes.append(
            f"The word table had {trained_rows:,} rows in training, of which {rows:,} stand for word"
            " pieces; the others, which padded it, are left out."
        )
    if head.model == ENCODER.model:  # Hugging Face's names of an encoder alone have no beginning
        others = sorted(name for name in weights if not name.startswith(_ROOT))
        weights = {name: weight for name, weight in weights.items() if name.startswith(_ROOT)}
        notes += [f"`{name}` is no weight of {head.model} and is left out." for name in others]
    arrays = {}
    for name, weight in weights.items():
        if name in VOCABULARY_SIZED:
            value = resize_vocabulary(weight, rows, vocabulary, f"{start.key}: {start.origin}")
        else:
            value = weight.value()
        exported_name = name[len(_ROOT) :] if head.model == ENCODER.model else name
        arrays[exported_name] = np.ascontiguousarray(value)
    return Exported(arrays, rows, head, notes)


def _rows(start: Pretrained, vocabulary: Optional[Path]) -> int:
    rows = start.weights[WORD_TABLE].shape[0]
    pieces = rows if vocabulary is None else len(read_vocabulary(vocabulary).pieces)
    if pieces > rows:
        raise UserError(
            f"{vocabulary} has {pieces:,} word pieces, but {start.origin} only {rows:,} rows for them; name the"
            " vocabulary of the training data with --vocab-file"
        )
    if vocabulary is not None and start.vocabulary not in (None, vocabulary):
        theirs = read_vocabulary(start.vocabulary)
        warn_of_other_pieces(read_vocabulary(vocabulary), theirs, start.vocabulary)
        pieces = max(pieces, len(theirs.pieces))  # a shorter one leaves no trained row out
    return pieces if start.native else rows


def _refuse_incomplete(start: Pretrained, names: Set[str]) -> None:
    missing = sorted(encoder_names(start.architecture["num_hidden_layers"]) - names)
    if missing:
        raise UserError(f"{start.key}: {start.origin} lacks {missing[0]}; name a complete checkpoint")
    if start.native and WORD_BIAS in names and f"{TRANSFORM}.dense.weight" not in names:
        raise UserError(
            f"{start.key}: {start.origin} was trained without use_cls_layer, and its last LayerNorm has a scale of"
            " nearly 0, so Hugging Face's masked-LM head cannot express it; add --encoder-only to write the model"
            " without heads"
        )


def _notes(start: Pretrained, names: Set[str]) -> List[str]:
    untrained = [name for name in start.neutral_weights if name in names]
    biases = sum(not name.startswith(f"{TRANSFORM}.") for name in untrained)
    notes = []
    if biases:
        notes.append(f"The model was trained without {biases} of BERT's biases; they are written as zeros.")
    if len(untrained) > biases:
        notes.append(
            f"The model was trained without the layer before the masked-LM product (`{TRANSFORM}`). It is"
            " written so that it returns its input, the output of the last LayerNorm, to the precision of float32; in"
            " half precision it does not."
        )
    return notes
