"""How a fine-tuning run cuts text into pieces: the config decides, else the weights that it starts from."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Optional

from data_utils.tokenizer import Vocabulary, read_vocabulary
from model.architecture import Architecture
from training.start import Start
from utilities.config.schema import TrainingConfig
from utilities.errors import UserError


class Wording(NamedTuple):
    """A vocabulary and whether text is lower-cased before it is looked up."""

    vocabulary: Vocabulary
    lower_case: bool


def wording_of(config: TrainingConfig, architecture: Architecture, start: Optional[Start]) -> Wording:
    """The vocabulary that ``vocab_file`` names, else that of the weights, and its case by ``lower_case``, the weights,
    or the vocabulary's own looks.

    Raises:
        UserError: there is none, it cannot be read, or it has more pieces than the model.
    """
    path = Path(config.vocab_file) if config.vocab_file else start.vocabulary if start else None
    if path is None:
        origin = start.origin if start else "a model with random weights"
        raise UserError(f"vocab_file is not set, and {origin} has no vocab.txt; set vocab_file (--vocab-file PATH)")
    vocabulary = read_vocabulary(path)
    if len(vocabulary.pieces) > architecture.vocab_size:
        raise UserError(
            f"{path}: has {len(vocabulary.pieces):,} pieces, the model {architecture.vocab_size:,} embeddings; set"
            " vocab_file to the vocabulary that the model was trained with"
        )
    said = (config.lower_case, start.lower_case if start else None)
    return Wording(vocabulary, next((case for case in said if case is not None), vocabulary.looks_lower_cased()))
