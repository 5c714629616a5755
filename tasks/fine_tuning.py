"""What the fine-tuning tasks share: the vocabulary, samples as rows of the batch, and the model."""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence, Tuple

import numpy as np

from data_utils.records.features import FeatureSpec, in_packs
from data_utils.records.packs import generated_rows, outputs_of_samples, rows_of
from data_utils.records.pipeline import SampleReader
from execution.interface import Platform
from model.architecture import Architecture
from training.building import build_model
from training.start import Start, TokenizerSettings, tokenizer_settings
from training.task import BuiltModel, Fill, Predict
from utilities.config.schema import TrainingConfig


class FineTuning:
    """The common part of the fine-tuning tasks; see :class:`training.task.Task`.

    Attributes:
        name: of the task.
        outputs: of the model.
        reads_cls: whether the model has one output for each sample, made of its [CLS], and not one for each token.
        labels: outputs of the classifier, if the model has one.
        label_names: names of these outputs, which checkpoints keep, where the config does not decide them.
        tokenizer_settings: the vocabulary and case that belong to the trained model; None with generated data.

    Raises:
        UserError: there is no vocabulary.
    """

    name: str
    outputs: Tuple[str, ...]
    reads_cls = False
    labels = 2
    label_names: Sequence[str] = ()

    def __init__(self, config: TrainingConfig, architecture: Architecture, start: Optional[Start]):
        self._config = config
        self._architecture = architecture
        self._facts: Dict[str, Any] = {}
        self.tokenizer_settings: Optional[TokenizerSettings] = None
        if not config.generated_dataset:
            self.tokenizer_settings = tokenizer_settings(config, architecture, start)

    def features(self, length: int, labels: bool = True) -> FeatureSpec:
        """Return what a sample of a length holds, with its labels or without."""
        raise NotImplementedError

    def build(self, platform: Platform, fill: Fill) -> BuiltModel:
        """Return Hugging Face's BERT with the task's head, converted unless ``replace_layers`` is false."""
        config, features = self._config, self.features(self._config.max_seq_length, labels=False)
        if config.packing.max_sequences_per_pack is not None:
            features = in_packs(features, config.packing.max_sequences_per_pack, self.reads_cls)
        return build_model(
            config, self.name, self._architecture, features.shapes, self.outputs, platform, fill, self.labels
        )

    def dataset_facts(self, reader: SampleReader) -> Dict[str, Any]:
        """Return what the report says of the training data."""
        return self._facts

    def generated(self) -> SampleReader:
        """Return random samples as rows of the batch."""
        config = self._config
        places = config.packing.max_sequences_per_pack
        reader = generated_rows(self.features, config.max_seq_length, places, config.seed, self.reads_cls)
        self._facts = {"records": reader.count}
        return reader

    def rows(self, samples: SampleReader, lengths: np.ndarray) -> SampleReader:
        """Return samples, which have ``lengths`` tokens, as rows of the batch."""
        config = self._config
        return rows_of(samples, lengths, config.packing.max_sequences_per_pack, config.seed, self.reads_cls)

    def predicted(self, predict: Predict, samples: SampleReader, lengths: np.ndarray) -> Dict[str, np.ndarray]:
        """Return the model's outputs for each sample, by name."""
        reader = self.rows(samples, lengths)
        return outputs_of_samples(reader, predict(reader))

    @property
    def words(self) -> TokenizerSettings:
        """The vocabulary and case of data that is not generated."""
        assert self.tokenizer_settings is not None, "data that is not generated has a vocabulary"
        return self.tokenizer_settings

    def vocabulary_facts(self) -> Dict[str, Any]:
        """Return what the report says of the vocabulary."""
        vocabulary, lower_case = self.words
        return {
            "vocabulary": {"file": str(vocabulary.path), "size": len(vocabulary.pieces), "sha256": vocabulary.sha256},
            "lower_case": lower_case,
        }
