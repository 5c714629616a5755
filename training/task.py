"""The interface between the trainer and its tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Protocol, Sequence

from data_utils.records.pipeline import SampleReader
from execution.interface import Objective, Platform
from keras_extensions.backend import keras
from keras_extensions.layer_replacement import Conversion
from model.architecture import Architecture
from model.blocks import Block
from settings.schema import TrainingConfig
from training.initial_weights import InitialWeights
from training.prediction import Predictor

# Sets the weights of a built Hugging Face model that training starts from.
SetInitialWeights = Callable[[keras.Model], None]


class BuiltModel(NamedTuple):
    """A model's blocks in order with their weights, its conversion (None: not converted), and the blocks joined.

    On a platform that only predicts, they are not joined.
    """

    blocks: List[Block]
    conversion: Optional[Conversion]
    joined: Optional[keras.Model]

    @property
    def model(self) -> keras.Model:
        assert self.joined is not None, "only models that are trained or evaluated are joined"
        return self.joined


class Task(Protocol):
    """Model, data, losses, evaluation and summary of one kind of training.

    Attributes:
        head_rows: for each output of the classifier, the row of the initial weights' head that has its name, None if
            there is none; None: the outputs are in the same order, or the initial weights have no such head.
    """

    name: str
    labels: int
    objective: Objective
    head_rows: Optional[Sequence[Optional[int]]]

    @staticmethod
    def metrics(config: TrainingConfig) -> Sequence[str]:
        """Return the scores of an evaluation; the first decides which is best, unless ``evaluation.metric`` does."""

    def open_data(self) -> SampleReader:
        """Open and check the samples to train on. Not called in a run that only evaluates."""

    def build(self, platform: Platform, set_initial_weights: SetInitialWeights) -> BuiltModel:
        """Build the converted model.

        ``set_initial_weights`` must be called with the Hugging Face model before its weights are transferred.
        """

    def dataset_description(self, reader: SampleReader) -> Dict[str, Any]:
        """Describe the data for the report."""

    def evaluate(self, predict: Predictor, folder: Optional[Path]) -> Dict[str, float]:
        """Run validation and test as the config asks, and write predictions into ``folder``.

        Args:
            folder: None while training, when only the scores of the validation set are needed.
        """

    def summary(self, metrics: Dict[str, float], dataset: Dict[str, Any]) -> List[str]:
        """Return lines for the end of training, which compare the last metrics with reference values."""


# Creates a task from the config, the resolved architecture, and the weights to start from.
MakeTask = Callable[[TrainingConfig, Architecture, Optional[InitialWeights]], Task]
