"""The weights that a run starts from, and the architecture, which they determine."""

from __future__ import annotations

import dataclasses
import logging
import time
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional, Protocol, Sequence

import numpy as np

from checkpoints.folder import Checkpoint
from checkpoints.pretrained.model_folder import PUT_CONFIG
from checkpoints.pretrained.opening import open_pretrained
from checkpoints.pretrained.pretrained import Pretrained, with_added_pieces, with_repeated_positions, without_other_head
from checkpoints.pretrained.sentence_transformers import EmbeddingSettings, embedding_settings
from checkpoints.pretrained.weights import WORD_BIAS, WORD_TABLE, from_tensorflow
from data_utils.records.manifest import check_vocabulary, load_manifest
from data_utils.records.pipeline import SampleReader
from data_utils.word_vectors import original_tokens, word_vectors
from execution.interface import Platform
from keras_extensions.backend import keras
from model.architecture import Architecture
from model.tasks import CLASSIFICATION, PRETRAINING, TOKEN_CLASSIFICATION
from settings.architecture import (
    OF_EMBEDDING,
    OF_WEIGHTS,
    check_sizes,
    combined_architecture,
    next_multiple,
    run_options,
)
from settings.data_sections import Embedding
from settings.derived import Stages, fits_stages
from settings.schema import TrainingConfig
from settings.sections import FIXED_SIZES
from utilities.errors import UserError

logger = logging.getLogger(__name__)

ENOUGH_TOKENS = 2_000_000  # for the frequencies of word pieces


class InitialWeights(Protocol):
    """Weights to start from.

    Attributes:
        architecture: the fields of ``model.architecture.Architecture`` that the weights decide.
        vocabulary: the ``vocab.txt`` or ``tokenizer.json`` that belongs to them, if there is one.
        lower_case: whether their text was lower-cased; None if unknown.
        trained_positions: number of positions of the longest sequences that they were trained on; None if unknown.
    """

    origin: str
    architecture: Dict[str, Any]
    vocabulary: Optional[Path]
    lower_case: Optional[bool]
    trained_positions: Optional[int]

    def set_initial_weights(self, source: keras.Model, head_rows: Optional[Sequence[Optional[int]]] = None) -> None:
        """Set the weights of a built Hugging Face model, before its conversion.

        The ``head_rows`` are those of :class:`training.task.Task`.
        """


class ResumedWeights:
    """The weights of a checkpoint of the run itself; a :class:`InitialWeights`."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        assert checkpoint.description is not None
        self.origin = str(checkpoint.folder)
        self.architecture: Dict[str, Any] = checkpoint.description["architecture"]
        self.vocabulary: Optional[Path] = checkpoint.vocabulary
        self.lower_case: Optional[bool] = checkpoint.description.get("lower_case")
        self.trained_positions: Optional[int] = checkpoint.description.get("trained_positions")
        self.embedding: Dict[str, Any] = checkpoint.description["config"].get("embedding") or {}

    def set_initial_weights(self, source: keras.Model, head_rows: Optional[Sequence[Optional[int]]] = None) -> None:
        """Do nothing: these are weights of converted blocks, which are restored with all other state."""


class DataSet(NamedTuple):
    """What weights have to fit: the file of a data set's word pieces, if it has one, and its longest sequence."""

    pieces: Optional[Path]
    longest: int


def described_data(folder: Optional[Path], max_seq_length: int) -> DataSet:
    """Return what the manifest of a data set, if there is one, says of it; a pack may be longer than its sequences."""
    manifest = None if folder is None else load_manifest(folder)
    if manifest is None:
        return DataSet(None, max_seq_length)
    check_vocabulary(manifest)
    longest = manifest.settings.get("packing", {}).get("unpacked_max_seq_length", max_seq_length)
    return DataSet(manifest.vocabulary_path, min(max_seq_length, longest))


def configured_weights(config: TrainingConfig, task: str, data: DataSet) -> Optional[InitialWeights]:
    """Open the weights that ``pretrained_ckpt_path`` or else ``bert_model_name`` names; None for random weights.

    For pre-training, rows are added for word pieces that only the data set has. If the config does not set the size of
    the vocabulary, it is rounded up to a multiple of ``embedding_serialization_factor``. If sequences are longer than
    those that the weights were trained on, the vectors of the new positions are copies of trained ones.
    """
    if config.weights is None:
        return None
    start = open_pretrained(config.weights, config.weights_key, config.allow_missing_weights)
    start = without_other_head(start, task)
    dropout = start.settings.get("classifier_dropout")
    has_own = dropout not in (None, start.architecture.get("hidden_dropout_prob"))
    if has_own and config.do_training and task in (CLASSIFICATION, TOKEN_CLASSIFICATION):
        what = f"its classifier_dropout, {dropout}, is not followed; the head has the dropout of hidden_dropout_prob"
        logger.warning("%s: %s", start.origin, what)
    if task == PRETRAINING and WORD_TABLE in start.weights:  # without it, refused when the model is filled
        if data.pieces is not None and start.vocabulary is not None:
            start = with_added_pieces(start, data.pieces)
        rows = next_multiple(start.architecture["vocab_size"], config.embedding_serialization_factor)
        start = dataclasses.replace(start, architecture={**start.architecture, "vocab_size": rows})
    return with_repeated_positions(start, data.longest)


def trained_positions(longest: int, start: Optional[InitialWeights], architecture: Architecture) -> int:
    """Return how many positions the weights of a run are trained on, including those that they started from."""
    if start is None:
        return longest
    before = start.trained_positions
    return max(longest, architecture.max_position_embeddings if before is None else before)


def embedding_of_weights(section: Embedding, start: Optional[InitialWeights]) -> Embedding:
    """Return the section ``embedding`` with the pooling and scaling of the weights, unless it sets them."""
    known = embedding_settings(start) if isinstance(start, Pretrained) else None
    stated = start.embedding if isinstance(start, ResumedWeights) else known._asdict() if known else {}
    usual = EmbeddingSettings()._asdict()
    values = {name: stated.get(name, usual[name]) for name in OF_EMBEDDING if getattr(section, name) is None}
    if values and stated and start is not None:
        logger.info("embeddings as those of %s: %s", start.origin, ", ".join(f"{k} {v}" for k, v in values.items()))
    return section.model_copy(update=values)


def resolved_architecture(
    config: TrainingConfig, start: Optional[InitialWeights], activation: str = "gelu"
) -> Architecture:
    """Return the architecture to build: that of a resumed run, or the config's, completed by the weights'.

    The ``activation`` is ``hidden_act`` if neither the config nor the weights set it.
    """
    stated = {} if start is None else start.architecture
    if isinstance(start, ResumedWeights):
        saved = Architecture(**stated)
        architecture = dataclasses.replace(saved, **run_options(config, saved.vocab_size))
    else:
        missing = [name for name in FIXED_SIZES if config.bert_config is None and name not in stated]
        if missing:
            assert start is not None, "the rules require bert_config if no weights are named"
            raise UserError(f"{start.origin} does not specify its {missing[0]}; {PUT_CONFIG}")
        architecture = combined_architecture(config, stated, activation)
    factor = config.embedding_serialization_factor
    if architecture.embedding_serialization_factor != factor:
        logger.info("embedding_serialization_factor %d does not divide the vocabulary, so it is 1", factor)
    if isinstance(start, Pretrained):
        _check_sizes(architecture, start, config.max_seq_length)
    return architecture


def _check_sizes(architecture: Architecture, start: Pretrained, max_seq_length: int) -> None:
    """Refuse other sizes than those of the weights, and longer sequences; warn of values that change results."""
    stated = start.architecture
    check_sizes(architecture, stated, start.origin)
    if max_seq_length > architecture.max_position_embeddings:
        raise UserError(
            f"max_seq_length is {max_seq_length}, but {start.origin} has {architecture.max_position_embeddings}"
            " positions; set max_seq_length to at most that"
        )
    for name in OF_WEIGHTS:
        given = getattr(architecture, name)
        if given != stated.get(name, given):
            logger.warning(
                "bert_config.%s is %s, but %s was trained with %s: its results will differ",
                name, given, start.origin, stated[name],
            )  # fmt: skip


def check_stages(stages: Optional[Stages], architecture: Architecture, platform: Platform) -> None:
    """Check that the stages are those of the model, whose size may be known only from its weights.

    On one device stages do not matter, and :func:`training.building.build_model` makes one of them.
    """
    layers = architecture.num_hidden_layers
    if fits_stages(stages, architecture):
        return
    if platform.name != "software" or platform.pipelined:
        raise UserError(
            f"ipu_config.pipeline_stages do not have the {layers} encoder layers of the weights; write {layers} hid"
            " there"
        )
    logger.info("ipu_config.pipeline_stages: the weights have %d encoder layers; the model is one stage", layers)


def assign_word_vectors(source: keras.Model, rows: SampleReader, scale: float, seed: int) -> None:
    """Set the word embeddings of a Hugging Face model to ``scale`` times the word vectors of a data set."""
    table, begin = source.get_input_embeddings().weight, time.perf_counter()
    vocab_size, hidden_size = table.shape
    table.assign(scale * word_vectors(rows, vocab_size, hidden_size, seed))  # (V, H)
    logger.info("word embeddings from counts of neighbours, %.1f s", time.perf_counter() - begin)


def assign_word_frequencies(
    source: keras.Model, start: Optional[InitialWeights], rows: SampleReader, seed: int
) -> None:
    """Begin a masked-LM head that weights lack with the frequencies of a data set's word pieces, as its bias."""
    bias = next((variable for variable in source.weights if from_tensorflow(variable.name).name == WORD_BIAS), None)
    if bias is None or not isinstance(start, Pretrained) or WORD_BIAS not in start.report.missing:
        return
    tokens, sequences = original_tokens(rows, seed, ENOUGH_TOKENS)
    counts = np.bincount(tokens[sequences > 0], minlength=bias.shape[0]) + 0.5  # (V,)
    bias.assign(np.log(counts / counts.sum()).astype(np.float32))
    logger.info("the new masked-LM head begins with the frequencies of the word pieces")


def refuse_random_weights(start: InitialWeights, allowed: bool) -> None:
    """Refuse to evaluate a model whose weights were loaded if some of them are random."""
    missing = start.report.missing if isinstance(start, Pretrained) else []
    if missing and not allowed:
        raise UserError(
            f"{start.origin} lacks {missing[0]}{f' and {len(missing) - 1} more' if len(missing) > 1 else ''}, so its"
            " scores would be random; train it first, or name a checkpoint of this task"
        )


def cast_note(start: InitialWeights, precision: str) -> str:
    """Return the end of a log line if weights are cast to another number format; otherwise an empty string."""
    if not isinstance(start, Pretrained):  # a run is resumed in its own format
        return ""
    settings = start.settings
    named = settings.get("precision") or settings.get("dtype") or settings.get("torch_dtype") or "float32"
    # In mixed precision weights are float32.
    saved, used = ("float32" if name == "mixed_bfloat16" else name for name in (str(named), precision))
    return "" if saved == used else f", saved in {saved} and cast to {used}"
