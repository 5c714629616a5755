"""Pretrained weights, and how they fill a built Hugging Face TensorFlow model."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from checkpoints.folder import USUAL_LENGTH
from checkpoints.pretrained.weights import (
    POSITION_TABLE,
    SPAN_HEAD,
    TRANSFORM,
    VOCABULARY_SIZED,
    WORD_BIAS,
    WORD_TABLE,
    Weight,
    Weights,
    from_tensorflow,
    is_encoder_weight,
    named_classes,
)
from data_utils.tokenizer import Vocabulary, make_tokenizer, read_vocabulary
from data_utils.tokenizer_files import CONTINUATION, UNKNOWN
from keras_extensions.backend import keras
from model.tasks import PRETRAINING, TASKS
from utilities.errors import UserError

logger = logging.getLogger(__name__)

HEAD = "classifier."  # beginning of the names of the heads of several tasks
_KNOWN_HEADS = ("bert.pooler.", "cls.", HEAD, f"{SPAN_HEAD}.")


@dataclasses.dataclass
class LoadReport:
    """Which weights were loaded, and which were not, by PyTorch's names; missing ones stay random."""

    loaded: int = 0
    missing: List[str] = dataclasses.field(default_factory=list)
    extra: List[str] = dataclasses.field(default_factory=list)
    padded: List[str] = dataclasses.field(default_factory=list)
    neutral: List[str] = dataclasses.field(default_factory=list)

    def log(self, origin: str) -> None:
        logger.info("%d weights from %s", self.loaded, origin)
        others = [name for name in self.extra if name.startswith(_KNOWN_HEADS)]
        unknown = [name for name in self.extra if name not in others]
        for level, names, text in (
            (logging.WARNING, self.missing, "not in the checkpoint, so it starts from random numbers"),
            (logging.INFO, others, "in the checkpoint, but not in the model"),
            (logging.WARNING, unknown, "in the checkpoint, but in no BERT; all is computed without it"),
            (logging.INFO, self.neutral, "not in the model that was trained; set so that it changes nothing"),
            (logging.INFO, self.padded, ""),
        ):
            for name in names:
                logger.log(level, "  %s%s", name, f": {text}" if text else "")


class OptimizerState(NamedTuple):
    """What an optimizer has to know to continue: updates done, and float32 moments by PyTorch's names."""

    updates: int
    first: Weights
    second: Weights


@dataclasses.dataclass(eq=False)
class Pretrained:
    """The weights that a run starts from, of any origin; see :class:`training.initial_weights.InitialWeights`.

    Attributes:
        weights: by PyTorch's names.
        vocabulary: the ``vocab.txt`` or ``tokenizer.json`` that belongs to them; it also determines how many rows of
            the word table are real word pieces.
        longest_text: tokens of a text at most, as the tokenizer's files say; None if they do not.
        neutral_weights: weights that the model was trained without, with values that change nothing.
        settings: Hugging Face's or Google's config, or the description of a checkpoint of this project.
    """

    origin: str
    weights: Weights
    architecture: Dict[str, Any]
    vocabulary: Optional[Path] = None
    lower_case: Optional[bool] = None
    trained_positions: Optional[int] = None
    longest_text: Optional[int] = None
    neutral_weights: Weights = dataclasses.field(default_factory=dict)
    unknown: List[str] = dataclasses.field(default_factory=list)
    settings: Dict[str, Any] = dataclasses.field(default_factory=dict)
    native: bool = False
    folder: Optional[Path] = None
    state: Optional[OptimizerState] = None
    key: str = "pretrained_ckpt_path"
    allow_missing: bool = False
    changes: List[str] = dataclasses.field(default_factory=list)
    report: LoadReport = dataclasses.field(default_factory=LoadReport, init=False, repr=False)

    @property
    def classes(self) -> List[str]:
        """Hugging Face's classes that the checkpoint names, as PyTorch calls them."""
        if self.native:
            task = TASKS.get(self.settings.get("task", ""))
            return [task.hugging_face] if task else []
        return named_classes(self.settings.get("architectures"))

    def missing_of_masked_lm(self) -> List[str]:
        """Return the weights of a masked-LM head that are missing; models of this project may have no transform."""
        transform = ("dense.weight", "dense.bias", "LayerNorm.weight", "LayerNorm.bias")
        names = [WORD_BIAS, *([] if self.native else [f"{TRANSFORM}.{name}" for name in transform])]
        return sorted({*names} - {*self.weights, *self.neutral_weights})

    def set_initial_weights(self, source: keras.Model, head_rows: Optional[Sequence[Optional[int]]] = None) -> None:
        """Set the weights of a built Hugging Face model, and log missing, extra and padded ones.

        The ``head_rows`` are the rows of a classifier's outputs in these weights; None: random, or all in the same
        order.
        """
        report = LoadReport(padded=list(self.changes))
        variables = {from_tensorflow(variable.name): variable for variable in source.weights}
        names = {known.name for known in variables}
        report.missing = sorted(names - {*self.weights, *self.neutral_weights})
        report.extra = [*sorted(set(self.weights) - names), *self.unknown]
        self._refuse_missing(report)
        for (name, transposed), variable in variables.items():
            weight = self.weights.get(name) or self.neutral_weights.get(name)
            if weight is None:
                continue
            if head_rows is not None and name.startswith(HEAD):
                weight = _chosen_rows(weight, head_rows, variable.numpy().T if transposed else variable.numpy())
                if weight is None:
                    report.missing = sorted([*report.missing, name])
                    report.extra.append(f"{name} of other classes")
                    continue
            shape = tuple(variable.shape)
            value = self._value_in_shape(name, weight, shape[::-1] if transposed else shape, report)
            if value is None:
                continue
            variable.assign(value.T if transposed else value)
            if name in self.weights:
                report.loaded += 1
            else:
                report.neutral.append(name)
        report.log(self.origin)
        self.report = report

    def _refuse_missing(self, report: LoadReport) -> None:
        encoder = [name for name in report.missing if is_encoder_weight(name)]
        if not encoder or self.allow_missing:
            return
        more = f" and {len(encoder) - 1} more of the encoder's weights" if len(encoder) > 1 else ""
        unused = [name for name in report.extra if not name.startswith("cls.")]
        hint = f"; it has {', '.join(unused[:2])}, which the model lacks" if unused else ""
        raise UserError(
            f"{self.key}: {self.origin} lacks {encoder[0]}{more}{hint}; name a checkpoint of this model, or set"
            " allow_missing_weights to true to start them from random numbers"
        )

    def _value_in_shape(
        self, name: str, weight: Weight, shape: Tuple[int, ...], report: LoadReport
    ) -> Optional[np.ndarray]:
        """Return a weight's value in a variable's shape; None for a head of another shape, which counts as missing."""
        if weight.shape == shape:
            return weight.value()
        if name in VOCABULARY_SIZED and weight.shape[1:] == shape[1:]:
            value = resize_vocabulary(weight, shape[0], self.vocabulary, f"{self.key}: {self.origin}")
            change = "zeros added" if shape[0] > weight.shape[0] else "rows of no word piece left out"
            report.padded.append(f"{name}: {weight.shape[0]} → {shape[0]} word pieces, {change}")
            return value
        if is_encoder_weight(name) or name.startswith("bert."):
            raise UserError(
                f"{self.key}: {weight.location} has the shape {list(weight.shape)}, the model's is {list(shape)}; use"
                " the bert_config of the weights"
            )
        report.missing = sorted([*report.missing, name])
        report.extra.append(f"{name} of shape {list(weight.shape)}, not {list(shape)}")
        return None


def _chosen_rows(weight: Weight, rows: Sequence[Optional[int]], initial: np.ndarray) -> Optional[Weight]:
    """Return a head with some rows of a weight, and those of ``initial`` for others; None if none fits."""
    known = [row is not None for row in rows]
    if not any(known) or weight.shape[1:] != initial.shape[1:]:
        return None

    def read() -> np.ndarray:
        value = np.array(initial)
        value[known] = weight.value()[[row for row in rows if row is not None]]
        return value

    return Weight(initial.shape, read, weight.location)


def longest_text(start: Pretrained, task: str) -> int:
    """Return the number of tokens of a text, at most, that a model takes for a task.

    A model of this project takes as many as in training, others what their tokenizer's files say or else all positions.
    """
    positions: int = start.architecture["max_position_embeddings"]
    if not start.native:
        return positions if start.longest_text is None else min(start.longest_text, positions)
    trained = start.settings.get(USUAL_LENGTH) or (start.settings.get("config") or {}).get("max_seq_length")
    # A row of pre-training may be a pack, which is longer than its sequences.
    same = trained if start.settings.get("task") == task != PRETRAINING else None
    return min(same or start.trained_positions or positions, positions)


def without_other_head(start: Pretrained, task: str) -> Pretrained:
    """Return weights without the classifier of another task, which would pass for that of ``task`` by its name."""
    names = [name for name, entry in TASKS.items() if entry.hugging_face in start.classes]
    if not names or task in names:
        return start
    other = {name: weight for name, weight in start.weights.items() if name.startswith(HEAD)}
    weights = {name: weight for name, weight in start.weights.items() if name not in other}
    unknown = [f"{name} of {TASKS[names[0]].title}" for name in other]
    return dataclasses.replace(start, weights=weights, unknown=[*start.unknown, *unknown])


def warn_of_other_pieces(ours: Vocabulary, theirs: Vocabulary, origin: Any) -> bool:
    """Log how many ids stand for other word pieces than those whose rows ``origin`` has, and return whether any do."""
    pairs = list(zip(ours.pieces, theirs.pieces))
    others = [number for number, (piece, known) in enumerate(pairs) if piece != known]
    if others:
        text = (
            "%s: %d of %d word pieces are not those of %s, first id %d (%r, there %r); their rows are those of others"
        )
        logger.warning(text, ours.path, len(others), len(pairs), origin, others[0], *pairs[others[0]])
    return bool(others)


def with_added_pieces(start: Pretrained, path: Path) -> Pretrained:
    """Return weights with a row for each piece that a vocabulary has after those of their own.

    New rows of the word table and of the masked-LM bias are the mean of the rows of the pieces that the token was split
    into before. If the vocabulary does not begin with theirs, weights are returned unchanged, with a warning.
    """
    assert start.vocabulary is not None
    old, new = read_vocabulary(start.vocabulary), read_vocabulary(path)
    count, table = len(old.pieces), start.weights[WORD_TABLE]
    added = new.pieces[count:]
    if warn_of_other_pieces(new, old, start.origin) or not added:
        return start
    if table.shape[0] < count:
        raise UserError(f"{start.key}: {table.location} has {table.shape[0]:,} rows, {old.path} {count:,} word pieces")
    tokenizer = make_tokenizer(old, lower_case=False)  # tokens are written as text is looked up
    unknown = [old.piece_id(UNKNOWN)]
    words = [token[len(CONTINUATION) :] if token.startswith(CONTINUATION) else token for token in added]
    parts = [tokenizer.encode(word, add_special_tokens=False).ids or unknown for word in words]
    longer = {name: _with_rows(start.weights[name], count, parts) for name in VOCABULARY_SIZED if name in start.weights}
    return dataclasses.replace(
        start,
        weights={**start.weights, **longer},
        architecture={**start.architecture, "vocab_size": len(new.pieces)},
        vocabulary=path,
        changes=[f"{len(added):,} word pieces added: each starts as the mean of those that it was split into before"],
    )


def with_repeated_positions(start: Pretrained, length: int) -> Pretrained:
    """Return weights in which the vectors of positions that they were not trained on are copies of trained ones.

    A model that meets random vectors at these positions forgets much of what it has learned. Position 0 is not copied,
    because [CLS] is always there, nor is the last trained position, where [SEP] nearly always is. Weights that were
    trained on ``length`` positions are returned unchanged.
    """
    trained, table = start.trained_positions, start.weights.get(POSITION_TABLE)
    if trained is None or table is None or not 2 < trained < length:
        return start
    numbers = np.arange(table.shape[0])
    numbers[trained - 1 :] = 1 + (numbers[trained - 1 :] - 1) % (trained - 2)
    repeated = Weight(table.shape, lambda: table.value()[numbers], table.location)
    change = f"{POSITION_TABLE}: the vectors from position {trained - 1} on start as copies of those before"
    return dataclasses.replace(
        start, weights={**start.weights, POSITION_TABLE: repeated}, changes=[*start.changes, change]
    )


def _with_rows(weight: Weight, count: int, parts: Sequence[Sequence[int]]) -> Weight:
    """Return a weight's first rows and, for each list of their numbers, the mean of these."""

    def read() -> np.ndarray:
        value = weight.value()[:count]
        return np.concatenate([value, np.stack([value[rows].mean(axis=0) for rows in parts])])

    return Weight((count + len(parts), *weight.shape[1:]), read, weight.location)


def resize_vocabulary(weight: Weight, rows: int, vocabulary: Optional[Path], origin: str) -> np.ndarray:
    """Lengthen or cut a weight that has one row for each word piece.

    Added rows are zeros, because no text contains such a piece. Rows are cut only if they do not represent a piece:
    those beyond the vocabulary or, if there is no vocabulary, rows of zeros.
    """
    value = weight.value()
    if rows >= len(value):
        return np.concatenate([value, np.zeros((rows - len(value), *value.shape[1:]), value.dtype)])
    pieces = len(value) if vocabulary is None else len(read_vocabulary(vocabulary).pieces)
    if pieces > rows and (vocabulary is not None or value[rows:].any()):
        raise UserError(
            f"{origin} has {pieces:,} word pieces, more than the model's {rows:,}; set bert_config.vocab_size to"
            f" {len(value)} or a little more, so that embedding_serialization_factor divides it"
        )
    return value[:rows]
