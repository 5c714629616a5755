"""The weights that a run starts from."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Optional, Protocol, Sequence

from keras_extensions.backend import keras
from utilities.checkpoints.folder import Checkpoint, find_checkpoint
from utilities.checkpoints.state import load_weights
from utilities.config.schema import TrainingConfig


class Start(Protocol):
    """Weights from somewhere.

    Attributes:
        origin: where from, for the log.
        architecture: fields of ``model.architecture.Architecture`` that the weights decide; None if unknown.
        vocabulary: the ``vocab.txt`` that belongs to them, where there is one.
        lower_case: whether their text was lower-cased; None if unknown.
    """

    origin: str
    architecture: Optional[Dict[str, Any]]
    vocabulary: Optional[Path]
    lower_case: Optional[bool]

    def fill_source(self, source: keras.Model) -> None:
        """Give a built Hugging Face model its weights, before conversion."""

    def load_blocks(self, blocks: Sequence[keras.layers.Layer]) -> None:
        """Give converted blocks their weights."""


class OwnCheckpoint:
    """A checkpoint of this project."""

    vocabulary: Optional[Path] = None
    lower_case: Optional[bool] = None

    def __init__(self, checkpoint: Checkpoint):
        self._checkpoint = checkpoint
        self.origin = str(checkpoint.weights.parent)
        self.architecture = checkpoint.facts["architecture"] if checkpoint.facts else None

    def fill_source(self, source: keras.Model) -> None:
        """Nothing: the weights fit the converted blocks."""

    def load_blocks(self, blocks: Sequence[keras.layers.Layer]) -> None:
        """See :class:`Start`."""
        load_weights(self._checkpoint, blocks)


def start_of(config: TrainingConfig) -> Optional[Start]:
    """What ``pretrained_ckpt_path`` or else ``bert_model_name`` names; None for a run from random weights."""
    if config.pretrained_ckpt_path is not None:
        return OwnCheckpoint(find_checkpoint(Path(config.pretrained_ckpt_path)))
    return None
