"""What the rooms do in a run, a list for each place; ``settings/rooms.py`` is what they say about a config."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Sequence

from keras_extensions.backend import keras
from keras_extensions.listeners.reporting import Listener
from model.architecture import Architecture
from model.blocks import Block
from settings.schema import TrainingConfig
from sparsity.training import change_patterns, check_sizes, execution_changes, prepare_layers  # room: sparsity
from training.resume import Position
from training.run_context import RunContext, TrainingData
from training.task import BuiltModel

# Refuse sizes of the model, which only its weights may have told.
CHECKS: List[Callable[[TrainingConfig, Architecture], None]] = [
    check_sizes,  # room: sparsity
]

# Fields of ``ExecutionOptions`` to change.
EXECUTION: List[Callable[[TrainingConfig], Dict[str, Any]]] = [
    execution_changes,  # room: sparsity
]

# Prepare the blocks of a new model before they get their weights.
NEW_MODEL: List[Callable[[TrainingConfig, Sequence[Block]], None]] = [
    prepare_layers,  # room: sparsity
]

# Listeners of all processes, which may change model and optimizer at the end of a logging period, before it is saved.
MakeListeners = Callable[
    [RunContext, TrainingData, BuiltModel, keras.optimizers.Optimizer, Position], Sequence[Listener]
]
LISTENERS: List[MakeListeners] = [
    change_patterns,  # room: sparsity
]
