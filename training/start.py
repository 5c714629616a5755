"""The weights that a run starts from."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Optional, Protocol, Sequence

from checkpoints.pretrained.opening import open_pretrained
from checkpoints.pretrained.pretrained import Pretrained
from keras_extensions.backend import keras
from utilities.config.schema import TrainingConfig
from utilities.errors import UserError


class Start(Protocol):
    """Weights from somewhere.

    Attributes:
        origin: where from, for the log.
        architecture: fields of ``model.architecture.Architecture`` that the weights decide.
        vocabulary: the ``vocab.txt`` that belongs to them, where there is one.
        lower_case: whether their text was lower-cased; None if unknown.
    """

    origin: str
    architecture: Dict[str, Any]
    vocabulary: Optional[Path]
    lower_case: Optional[bool]

    def fill_source(self, source: keras.Model) -> None:
        """Give a built Hugging Face model its weights, before conversion."""

    def load_blocks(self, blocks: Sequence[keras.layers.Layer]) -> None:
        """Give converted blocks their weights."""


def start_of(config: TrainingConfig) -> Optional[Start]:
    """What ``pretrained_ckpt_path`` or else ``bert_model_name`` names; None for a run from random weights."""
    for key in ("pretrained_ckpt_path", "bert_model_name"):
        named = getattr(config, key)
        if named is not None:
            return open_pretrained(named, key, config.allow_missing_weights)
    return None


def refuse_random_weights(start: Start, allowed: bool) -> None:
    """Keep an evaluation from being one of random numbers; call it once the model is filled.

    Args:
        allowed: whether the config lets weights be missing.

    Raises:
        UserError: the model has weights that the checkpoint lacks.
    """
    missing = start.report().missing if isinstance(start, Pretrained) else []
    if missing and not allowed:
        raise UserError(
            f"{start.origin} lacks {missing[0]}{f' and {len(missing) - 1} more' if len(missing) > 1 else ''}, so its"
            " scores would be random; train first (--do-training true), or name a checkpoint of this task"
        )
