"""What a task supplies to the trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Protocol

import numpy as np

from data_utils.records.pipeline import SampleReader
from execution.interface import Objective, Platform
from keras_extensions.backend import keras
from keras_extensions.conversion import Conversion
from model.architecture import Architecture
from model.blocks import Block
from training.start import Start
from utilities.config.schema import TrainingConfig

# Runs the model over every sample of a reader, in order; gives its outputs by name, one row a sample.
Predict = Callable[[SampleReader], Mapping[str, np.ndarray]]

# Gives a built Hugging Face model the weights that training starts from.
Fill = Callable[[keras.Model], None]


class BuiltModel(NamedTuple):
    """A model with its weights, as the ordered blocks it is made of, and how it came about (None: unconverted)."""

    model: keras.Model
    blocks: List[Block]
    conversion: Optional[Conversion]


class Task(Protocol):
    """Model, data, losses, evaluation and summary of one kind of training."""

    name: str
    objective: Objective

    def open_data(self) -> SampleReader:
        """The samples to train on, checked. Not called for a run that only evaluates."""

    def build(self, platform: Platform, fill: Fill) -> BuiltModel:
        """The converted model.

        Args:
            platform: where it runs.
            fill: to be called with the Hugging Face model before its weights are carried over.
        """

    def dataset_facts(self, reader: SampleReader) -> Dict[str, Any]:
        """What the report says of the data."""

    def evaluate(self, predict: Predict, folder: Path) -> Dict[str, float]:
        """Validation and test, as the config asks; writes predictions into ``folder``.

        Returns:
            The scores by name; empty where the task has none.
        """

    def summary(self, metrics: Dict[str, float], dataset: Dict[str, Any]) -> List[str]:
        """What to tell at the end of training: the last metrics beside what they should be compared with."""


# Makes a task for a config, with the architecture that was settled on and the weights to start from.
MakeTask = Callable[[TrainingConfig, Architecture, Optional[Start]], Task]
