"""Every task by name."""

from __future__ import annotations

from typing import Dict

from data_utils.classification import clue, glue
from data_utils.classification.tasks import BenchmarkTask

TASKS: Dict[str, BenchmarkTask] = {task.name: task for task in (*glue.TASKS, *clue.TASKS)}
