"""What a row of a classification batch is: one padded sample, or a pack of several."""

from __future__ import annotations

from typing import Dict, List, Mapping, Optional, Protocol, Tuple

import numpy as np

from data_utils.records.arrays import ArrayReader
from data_utils.records.features import classification_features, packed_classification_features
from data_utils.records.generated import POOL_SAMPLES, GeneratedReader
from data_utils.records.packed_reader import PackedReader, pack_samples
from data_utils.records.pipeline import SampleReader
from execution.interface import Objective
from model.bert import token_shapes
from model.blocks import Block
from model.losses import (
    ClassificationObjective,
    PackedClassificationObjective,
    PackedRegressionObjective,
    RegressionObjective,
)
from model.packing import packed, packed_token_shapes
from training.task import Predict
from utilities.config.figures import is_packed
from utilities.config.schema import TrainingConfig

CLS_POSITIONS = "cls_positions"
SHORTEST_SAMPLE = 3  # tokens: [CLS] a [SEP]

# Model inputs of samples, padded: name → (N, max_seq_length).
Inputs = Mapping[str, np.ndarray]


class SampleRows(Protocol):
    """Samples, random data, model and losses for one kind of row."""

    objective: Objective

    def reader(self, inputs: Inputs, labels: Optional[np.ndarray]) -> SampleReader:
        """Rows of samples, with labels or without."""

    def generated(self, seed: int) -> SampleReader:
        """Random rows."""

    def logits(self, predict: Predict, inputs: Inputs) -> np.ndarray:
        """The model's outputs for every sample, ``(N, classes)``."""

    def shapes(self) -> Dict[str, Tuple[int, ...]]:
        """Of the model's inputs for one row."""

    def blocks(self, blocks: List[Block]) -> List[Block]:
        """The blocks of one sample a row, made fit."""


class SingleSamples:
    """One sample a row, padded to ``max_seq_length``.

    Args:
        vocab_size: of the model.
        classes: of the task; 1 for a regression.
    """

    def __init__(self, config: TrainingConfig, vocab_size: int, classes: int):
        self.objective = RegressionObjective() if classes == 1 else ClassificationObjective(config.show_accuracy)
        self._sizes = (config.max_seq_length, vocab_size, classes)

    def reader(self, inputs: Inputs, labels: Optional[np.ndarray]) -> ArrayReader:
        if labels is None:
            return ArrayReader(classification_features(*self._sizes, labels=False), inputs)
        return ArrayReader(classification_features(*self._sizes), {**inputs, "labels": labels})

    def generated(self, seed: int) -> GeneratedReader:
        return GeneratedReader(classification_features(*self._sizes), seed)

    def logits(self, predict: Predict, inputs: Inputs) -> np.ndarray:
        return np.asarray(predict(self.reader(inputs, None))["logits"])

    def shapes(self) -> Dict[str, Tuple[int, ...]]:
        return token_shapes(self._sizes[0])

    def blocks(self, blocks: List[Block]) -> List[Block]:
        return blocks


class PackedSamples:
    """Up to ``packing.max_sequences_per_pack`` samples a row; arguments as for :class:`SingleSamples`."""

    def __init__(self, config: TrainingConfig, vocab_size: int, classes: int):
        places = config.packing.max_sequences_per_pack
        assert places is not None
        regression = classes == 1
        self.objective = (
            PackedRegressionObjective() if regression else PackedClassificationObjective(config.show_accuracy)
        )
        self._single = SingleSamples(config, vocab_size, classes)
        self._length, self._places, self._seed = config.max_seq_length, places, config.seed
        self._others = (vocab_size, classes)

    def reader(self, inputs: Inputs, labels: Optional[np.ndarray]) -> PackedReader:
        lengths = np.asarray(inputs["input_mask"]).sum(axis=1)
        packs = pack_samples(lengths, self._length, self._places, self._seed)
        spec = packed_classification_features(self._length, self._places, *self._others, labels=labels is not None)
        return PackedReader(spec, self._single.reader(inputs, labels), lengths, packs)

    def generated(self, seed: int) -> PackedReader:
        places = max(1, min(self._places, self._length // SHORTEST_SAMPLE))
        length = self._length // places
        packs = np.arange(POOL_SAMPLES // places * places).reshape(-1, places).tolist()
        samples = GeneratedReader(classification_features(length, *self._others), seed, len(packs) * places)
        spec = packed_classification_features(self._length, self._places, *self._others)
        return PackedReader(spec, samples, np.full(samples.count, length), packs)

    def logits(self, predict: Predict, inputs: Inputs) -> np.ndarray:
        reader = self.reader(inputs, None)
        return reader.of_samples(np.asarray(predict(reader)["logits"]))

    def shapes(self) -> Dict[str, Tuple[int, ...]]:
        return {**packed_token_shapes(self._length), CLS_POSITIONS: (self._places,)}

    def blocks(self, blocks: List[Block]) -> List[Block]:
        return packed(blocks, CLS_POSITIONS)


def sample_rows_of(config: TrainingConfig, vocab_size: int, classes: int) -> SampleRows:
    """As the section ``packing`` says."""
    return (PackedSamples if is_packed(config) else SingleSamples)(config, vocab_size, classes)
