"""The base class of the fine-tuning tasks: the vocabulary, samples as rows of the batch, and the model."""

from __future__ import annotations

import functools
import logging
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple

import numpy as np
from tokenizers import Tokenizer

from checkpoints.pretrained.pretrained import warn_of_other_pieces
from data_utils.classification.features import Features, cut_line, report_truncation, text_features
from data_utils.records.arrays import ArrayReader
from data_utils.records.features import FeatureSpec, in_packs
from data_utils.records.packs import generated_rows, make_rows, outputs_by_sample
from data_utils.records.pipeline import SampleReader
from data_utils.tokenizer import Vocabulary, make_tokenizer, read_vocabulary
from execution.interface import Platform
from model.architecture import Architecture
from settings.architecture import exceeds_padding
from settings.schema import TrainingConfig
from training.building import build_model
from training.initial_weights import InitialWeights
from training.prediction import Predict, PredictorCall
from training.task import BuiltModel, SetInitialWeights
from utilities.errors import UserError

logger = logging.getLogger(__name__)


class TokenizerSettings(NamedTuple):
    """A vocabulary, and whether text is lower-cased before it is looked up."""

    vocabulary: Vocabulary
    lower_case: bool


class FineTuning:
    """The base class of the fine-tuning tasks; see :class:`training.task.Task`.

    ``tasks/__init__.py`` describes how to add a task. A task that lacks a vocabulary, or data to evaluate on, raises a
    ``UserError`` when it is made, before training.

    Attributes:
        reads_cls: whether the model has one output for each sample, computed from its [CLS], not one for each token.
        texts: number of sequences of a sample.
        labels: number of the classifier's outputs, if the model has one.
        text_counts: numbers of texts that a sample to predict may have.
        takes: these numbers in words, ``SQuAD takes 2 texts``.
        text_columns: names of the columns of texts to predict, unless a user names others.
        label_names: names of the classifier's outputs, stored in checkpoints, if the config does not determine them.
        tokenizer_settings: the vocabulary and case that belong to the trained model; None with generated data.
    """

    name: str
    outputs: Tuple[str, ...]
    reads_cls = False
    texts = 1
    labels = 2
    text_counts: Sequence[int] = (1,)
    takes: str
    text_columns: Sequence[str] = ("text",)
    label_names: Sequence[str] = ()
    head_rows: Optional[Sequence[Optional[int]]] = None

    def __init__(self, config: TrainingConfig, architecture: Architecture, start: Optional[InitialWeights]):
        self._config = config
        self._architecture = architecture
        self._description: Dict[str, Any] = {}
        self.tokenizer_settings: Optional[TokenizerSettings] = None
        if not config.generated_dataset:
            self.tokenizer_settings = tokenizer_settings(config.vocab_file, config.lower_case, architecture, start)

    def check_texts(self, given: int) -> None:
        """Raise ``UserError`` unless a sample to predict may have this number of texts."""
        if given not in self.text_counts:
            raise UserError(f"{self.takes}, not {given}; quote each text, or name as many columns")

    def features(self, length: int, labels: bool = True) -> FeatureSpec:
        """Return the features of a sample of a length, with or without its labels."""
        raise NotImplementedError

    def build(self, platform: Platform, set_initial_weights: SetInitialWeights) -> BuiltModel:
        """Return Hugging Face's BERT with the task's head, converted unless ``replace_layers`` is false."""
        config, features = self._config, self.features(self._config.max_seq_length, labels=False)
        if self.sequences_per_row is not None:
            features = in_packs(features, self.sequences_per_row, self.reads_cls)
        return build_model(
            config,
            self.name,
            self._architecture,
            features.shapes,
            self.outputs,
            platform,
            set_initial_weights,
            self.labels,
        )

    def dataset_description(self, reader: SampleReader) -> Dict[str, Any]:
        """Describe the training data for the report."""
        return self._description

    def generated(self) -> SampleReader:
        """Return random samples as rows of the batch."""
        config, count = self._config, self.sequences_per_row
        reader = generated_rows(self.features, config.max_seq_length, count, config.seed, self.reads_cls, self.texts)
        self._description = {"records": reader.count}
        return reader

    @property
    def sequences_per_row(self) -> Optional[int]:
        """The most sequences in a row of the batch; None if each row is one sequence, padded."""
        count = self._config.packing.max_sequences_per_pack
        return count if self.texts == 1 else self.texts * (count or 1)

    def rows(self, samples: SampleReader, lengths: np.ndarray, texts: Optional[int] = None) -> SampleReader:
        """Return sequences of ``lengths`` tokens as rows of the batch; by default those of a sample stay together."""
        count, texts = self.sequences_per_row, texts or self.texts
        self._check_segments(samples)
        return make_rows(samples, lengths, count, self._config.seed, self.reads_cls, texts)

    def _check_segments(self, samples: SampleReader) -> None:
        """Refuse pairs of texts if the weights have a row for one segment only; XLA would read that row in silence."""
        rows, tokenizer = self._architecture.type_vocab_size, self.tokenizer_settings
        inputs = None if tokenizer is None else tokenizer.vocabulary.rules.model_input_names
        if rows > 1 and inputs is None:
            return
        if samples.read(np.arange(samples.count))["segment_ids"].any():
            if inputs is not None:
                raise UserError(
                    "samples are pairs of texts, which the tokenizer does not tell apart (its model_input_names are"
                    f" {', '.join(inputs)}); give one text a sample, or add token_type_ids there"
                )
            raise UserError(
                "samples are pairs of texts, but the model tells no second segment apart (its type_vocab_size is"
                f" {rows}); give one text a sample, or name weights with a type_vocab_size of 2"
            )

    def report_cut(self, origin: str, call: PredictorCall) -> None:
        """Log how many samples of a call were longer than ``max_seq_length``."""
        if call.cut:
            length = self._config.max_seq_length
            logger.warning(cut_line(origin, call.samples, call.cut, length, call.lost_words))

    def predicted(self, predict: Predict, samples: SampleReader, lengths: np.ndarray) -> Dict[str, np.ndarray]:
        """Return the model's outputs for each sequence, by name."""
        if isinstance(predict, PredictorCall):
            self._check_segments(samples)
            outputs = predict(samples, lengths)
            if not all(np.isfinite(values).all() for values in outputs.values()):
                reason = "the model's scores are not finite numbers; its weights are damaged"
                raise UserError(f"{reason}: take another checkpoint")
            return outputs
        reader = self.rows(samples, lengths, texts=1)
        return outputs_by_sample(reader, predict(reader))

    def encoded(self, texts: Sequence[Tuple[str, ...]]) -> Features:
        return text_features(self.tokenizer, texts, self._config.max_seq_length)

    def inputs(self, predict: Predict, texts: Sequence[Tuple[str, ...]], origin: Optional[str]) -> Features:
        """Return the model inputs of texts; what was cut is counted, or logged if the texts' origin is given."""
        inputs = self.encoded(texts)
        if isinstance(predict, PredictorCall):
            predict.count(len(texts), inputs.truncated)
        elif origin is not None:
            report_truncation(origin, len(texts), inputs, self._config.max_seq_length)
        return inputs

    def outputs_of(self, predict: Predict, inputs: Features) -> Dict[str, np.ndarray]:
        """Return the model's outputs for the inputs of texts, by name."""
        samples = ArrayReader(self.features(self._config.max_seq_length, labels=False), inputs.arrays)
        return self.predicted(predict, samples, inputs.lengths)

    @property
    def required_tokenizer_settings(self) -> TokenizerSettings:
        """The vocabulary and case of data that is not generated."""
        assert self.tokenizer_settings is not None, "data that is not generated has a vocabulary"
        return self.tokenizer_settings

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of data that is not generated."""
        return make_tokenizer(*self.required_tokenizer_settings, special_tokens=True)

    def vocabulary_description(self) -> Dict[str, Any]:
        vocabulary, lower_case = self.required_tokenizer_settings
        return {
            "vocabulary": {"file": str(vocabulary.path), "size": len(vocabulary.pieces), "sha256": vocabulary.sha256},
            "lower_case": lower_case,
        }


def held_out_count(counts: Sequence[int]) -> Dict[str, int]:
    """Return how many samples are held out in all validation sets, by its name in the report; empty without one."""
    return {"records_held_out": sum(counts)} if counts else {}


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
