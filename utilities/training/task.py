"""What a task supplies to the trainer."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Protocol

from data_utils.records.pipeline import SampleReader
from execution.interface import Objective, Platform
from keras_extensions.backend import keras
from keras_extensions.conversion import Conversion
from model.architecture import Architecture
from model.blocks import Block


class BuiltModel(NamedTuple):
    """A model with its weights, as the ordered blocks it is made of, and how it came about (None: unconverted)."""

    model: keras.Model
    blocks: List[Block]
    conversion: Optional[Conversion]


class Task(Protocol):
    """Model, data, losses and summary of one kind of training."""

    name: str
    objective: Objective

    def open_data(self) -> SampleReader:
        """The samples to train on, checked."""

    def build(self, architecture: Architecture, platform: Platform) -> BuiltModel:
        """The converted model with untrained heads and random or pre-trained weights."""

    def dataset_facts(self, reader: SampleReader) -> Dict[str, Any]:
        """What the report says of the data."""

    def summary(self, metrics: Dict[str, float], dataset: Dict[str, Any]) -> List[str]:
        """What to tell at the end: the last metrics beside what they should be compared with."""
