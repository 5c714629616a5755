"""What the rooms say about a config, a list for each question; ``training/rooms.py`` is what they do in a run.

A room is a feature that a BERT can be trained without: its files stand apart, and it can be taken out.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Set, Tuple

from graphcore.rules import limits_of_ipus, proportions  # room: graphcore
from model.architecture import Architecture
from pipeline.rules import parallel_micro_batches, pipeline_schedule, stage_devices  # room: pipeline
from settings.problems import SettingError
from settings.schema import TrainingConfig
from sparsity.plan import compared_with_dense  # room: sparsity
from sparsity.rules import fields_to_keep, sparse_matrices  # room: sparsity
from teacher.rules import distillation  # room: teacher

# Rules of their sections, as those in ``rules.py``.
RULES: List[Callable[[TrainingConfig, str], Iterator[SettingError]]] = [
    stage_devices,  # room: pipeline
    pipeline_schedule,  # room: pipeline
    parallel_micro_batches,  # room: pipeline
    sparse_matrices,  # room: sparsity
    distillation,  # room: teacher
    proportions,  # room: graphcore
    limits_of_ipus,  # room: graphcore
]

# Names of fields that may otherwise change when a run is resumed, and not with this config.
KEPT_FIELDS: List[Callable[[TrainingConfig], Set[str]]] = [
    fields_to_keep,  # room: sparsity
]

# Figures of a model for the run's files, and rows for its plan; the other arguments count parameters and FLOPs.
Count = Callable[[Architecture], int]
FIGURES: List[Callable[[Architecture, Count, Count], Tuple[Dict[str, Any], List[Tuple[str, str]]]]] = [
    compared_with_dense,  # room: sparsity
]
