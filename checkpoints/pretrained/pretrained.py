"""Weights by PyTorch's names into a built Hugging Face TensorFlow model, and the account of it.

V word pieces that the model has rows for
"""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from checkpoints.pretrained.names import VOCABULARY_SIZED, from_tensorflow, is_encoder_weight
from checkpoints.pretrained.settings import pieces_of
from checkpoints.pretrained.weights import Weight, Weights
from keras_extensions.backend import keras
from utilities.errors import UserError

logger = logging.getLogger(__name__)


@dataclasses.dataclass
class LoadReport:
    """What became of a checkpoint's weights, each by PyTorch's name.

    Attributes:
        loaded: number of weights taken from the checkpoint.
        missing: weights of the model that the checkpoint lacks; they stay random.
        extra: weights of the checkpoint that the model has no place for.
        padded: tables of word pieces that were lengthened or cut, with both lengths.
        supplied: weights that the checkpoint's model did without, written so that they change nothing.
    """

    loaded: int = 0
    missing: List[str] = dataclasses.field(default_factory=list)
    extra: List[str] = dataclasses.field(default_factory=list)
    padded: List[str] = dataclasses.field(default_factory=list)
    supplied: List[str] = dataclasses.field(default_factory=list)

    def tell(self, origin: str) -> None:
        """Every list, through logging."""
        logger.info("%d weights from %s", self.loaded, origin)
        for level, names, text in (
            (logging.WARNING, self.missing, "not in the checkpoint, so it starts from random numbers"),
            (logging.INFO, self.extra, "in the checkpoint, but the model has no place for it"),
            (logging.INFO, self.supplied, "left out of the model that was trained; written so that it changes nothing"),
            (logging.INFO, self.padded, ""),
        ):
            for name in names:
                logger.log(level, "  %s%s", name, f": {text}" if text else "")


class Pretrained:
    """The weights that a run starts from, wherever they come from; see :class:`training.start.Start`.

    Attributes:
        origin: where from, for the log.
        architecture: fields of :class:`model.architecture.Architecture` that the weights decide.
        vocabulary: the ``vocab.txt`` that belongs to them; it also tells how many word pieces are real.
        lower_case: whether their text was lower-cased; None if unknown.
        weights: by PyTorch's names.
        stand_ins: for weights that the model of the checkpoint did without.
        unknown: further names in the file.
        settings: Hugging Face's or Google's config, or the facts of a checkpoint of this project.
        own: whether this project wrote it.
        folder: where its files lie.
    """

    def __init__(
        self,
        origin: str,
        weights: Weights,
        architecture: Dict[str, Any],
        vocabulary: Optional[Path] = None,
        lower_case: Optional[bool] = None,
        stand_ins: Optional[Weights] = None,
        unknown: Sequence[str] = (),
        settings: Optional[Dict[str, Any]] = None,
        own: bool = False,
        folder: Optional[Path] = None,
        key: str = "pretrained_ckpt_path",
        allow_missing: bool = False,
    ):
        self.origin = origin
        self.weights = weights
        self.architecture = architecture
        self.vocabulary = vocabulary
        self.lower_case = lower_case
        self.stand_ins = stand_ins or {}
        self.unknown = list(unknown)
        self.settings = settings or {}
        self.own = own
        self.folder = folder
        self._key = key
        self._allow_missing = allow_missing
        self._report = LoadReport()

    def report(self) -> LoadReport:
        """What became of the weights in the last ``fill_source``."""
        return self._report

    def fill_source(self, source: keras.Model) -> None:
        """Set the weights of a built Hugging Face model, and tell what was missing, extra or padded.

        Raises:
            UserError: an encoder weight is missing, has another shape or cannot be read, or word pieces would be lost.
        """
        report = LoadReport()
        variables = {from_tensorflow(variable.name): variable for variable in source.weights}
        names = {known.name for known in variables}
        report.missing = [name for name in sorted(names) if name not in self.weights and name not in self.stand_ins]
        report.extra = [*(name for name in sorted(self.weights) if name not in names), *self.unknown]
        self._refuse_missing(report)
        for (name, transposed), variable in variables.items():
            weight = self.weights.get(name) or self.stand_ins.get(name)
            if weight is None:
                continue
            shape = tuple(variable.shape)
            value = self._fitted(name, weight, shape[::-1] if transposed else shape, report)
            if value is None:
                continue
            variable.assign(value.T if transposed else value)
            if name in self.weights:
                report.loaded += 1
            else:
                report.supplied.append(name)
        report.tell(self.origin)
        self._report = report

    def load_blocks(self, blocks: Sequence[keras.layers.Layer]) -> None:
        """Nothing: the weights came with the source model."""

    def _refuse_missing(self, report: LoadReport) -> None:
        encoder = [name for name in report.missing if is_encoder_weight(name)]
        if not encoder or self._allow_missing:
            return
        more = f" and {len(encoder) - 1} more of the encoder's weights" if len(encoder) > 1 else ""
        unused = [name for name in report.extra if not name.startswith("cls.")]
        hint = f"; it has {', '.join(unused[:2])}, which the model has not" if unused else ""
        raise UserError(
            f"{self._key}: {self.origin} lacks {encoder[0]}{more}{hint}; name a checkpoint of this model, or set"
            " allow_missing_weights to true to start them from random numbers"
        )

    def _fitted(self, name: str, weight: Weight, shape: Tuple[int, ...], report: LoadReport) -> Optional[np.ndarray]:
        """The value in the shape of the variable; None for a head of another shape, which is as good as missing."""
        if weight.shape == shape:
            return weight.value()
        if name in VOCABULARY_SIZED and weight.shape[1:] == shape[1:]:
            value = resized(weight, shape[0], self.vocabulary, f"{self._key}: {self.origin}")
            change = "zeros added" if shape[0] > weight.shape[0] else "rows of no word piece left out"
            report.padded.append(f"{name}: {weight.shape[0]} → {shape[0]} word pieces, {change}")
            return value
        if is_encoder_weight(name) or name.startswith("bert."):
            raise UserError(
                f"{self._key}: {weight.place} has the shape {list(weight.shape)}, the model's is {list(shape)}; use the"
                " bert_config of the weights"
            )
        report.missing = sorted([*report.missing, name])
        report.extra.append(f"{name} of shape {list(weight.shape)}, not {list(shape)}")
        return None


def resized(weight: Weight, rows: int, vocabulary: Optional[Path], place: str) -> np.ndarray:
    """A weight with one row a word piece, for a model with another number of rows.

    Rows that are added are zeros: no text has such a piece. Rows are cut only if they stand for no piece, which the
    vocabulary tells, or without one, that they are zeros.

    Args:
        weight: (C, …), C pieces.
        rows: V.
        vocabulary: the ``vocab.txt`` of the weights.
        place: for messages.

    Raises:
        UserError: word pieces would be lost.
    """
    value = weight.value()
    if rows >= len(value):
        return np.concatenate([value, np.zeros((rows - len(value), *value.shape[1:]), value.dtype)])
    pieces = len(value) if vocabulary is None else pieces_of(vocabulary)
    if pieces > rows and (vocabulary is not None or value[rows:].any()):
        raise UserError(
            f"{place} knows {pieces:,} word pieces, more than the model's {rows:,}; set bert_config.vocab_size to"
            f" {len(value)} or a little more, so that embedding_serialization_factor divides it"
        )
    return value[:rows]
