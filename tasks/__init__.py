"""The tasks: a file each, with data, model, losses, metrics, evaluation and outputs.

``model.architecture.TASKS`` is their registry: it says what configs, plans and checkpoints need to know of each before
its model is built. The class of a task is the ``TASK`` of ``tasks/<name>.py``.
"""

from __future__ import annotations

import importlib
from typing import Any

from model.architecture import TASKS


def task_class(name: str) -> Any:
    """Return the class of a task by its name, as :data:`training.task.MakeTask`."""
    assert name in TASKS, f"{name} is not one of {', '.join(TASKS)}"
    return importlib.import_module(f"tasks.{name}").TASK
