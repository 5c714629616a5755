"""The vocabulary of a fine-tuning, and whether its text is lower-cased."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Optional

from checkpoints.pretrained.pretrained import warn_of_other_pieces
from data_utils.tokenizer import Vocabulary, read_vocabulary
from model.architecture import Architecture
from settings.architecture import exceeds_padding
from training.initial_weights import InitialWeights
from utilities.errors import UserError


class TokenizerSettings(NamedTuple):
    """A vocabulary, and whether text is lower-cased before it is looked up."""

    vocabulary: Vocabulary
    lower_case: bool


def tokenizer_settings(
    vocab_file: Optional[str], lower_case: Optional[bool], architecture: Architecture, start: Optional[InitialWeights]
) -> TokenizerSettings:
    """Return the vocabulary and case of a fine-tuning run.

    The vocabulary is ``vocab_file``, or else that of the weights. Whether text is lower-cased is determined by
    ``lower_case``, else by ``vocab_file`` if it says so, else by the weights, else it is guessed from the vocabulary.
    """
    theirs = start.vocabulary if start else None
    path = Path(vocab_file) if vocab_file else theirs
    if path is None:
        origin = start.origin if start else "a model with random weights"
        raise UserError(
            f"vocab_file is not set, and {origin} has no vocab.txt and no tokenizer.json; set vocab_file"
            " (--vocab-file PATH)"
        )
    vocabulary = read_vocabulary(path)
    rows, pieces = architecture.vocab_size, len(vocabulary.pieces)
    if pieces > rows:
        raise UserError(
            f"{path}: has {pieces:,} pieces, the model {rows:,} embeddings; set vocab_file to the vocabulary that the"
            " model was trained with"
        )
    trained = start.architecture.get("vocab_size", rows) if start else rows
    if start and exceeds_padding(rows, max(trained, pieces), architecture.embedding_serialization_factor):
        raise UserError(
            f"bert_config.vocab_size is {rows}, but {start.origin} was trained with {trained}; set it to that, or leave"
            " it to the weights (remove it)"
        )
    if theirs is not None and theirs != vocabulary.path:
        warn_of_other_pieces(vocabulary, read_vocabulary(theirs), theirs)
    given = vocabulary.lower_case if vocab_file else None
    return TokenizerSettings(vocabulary, vocabulary.lowers_case(lower_case, given, start.lower_case if start else None))
