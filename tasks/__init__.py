"""The tasks: one file each, with data, model, losses, metrics, evaluation and outputs.

``model.architecture.TASKS`` is their registry, with what configs, plans and checkpoints need to know about a task
before its model is built. The class of a task is ``TASK`` in ``tasks/<name>.py``.

To add a fine-tuning task: read its data in ``data_utils``, derive its class from :class:`tasks.fine_tuning.FineTuning`,
add a row to the registry, and write a script like ``run_squad.py`` and a config.
"""

from __future__ import annotations

import importlib
from typing import Any

from model.architecture import TASKS


def task_class(name: str) -> Any:
    """Return the class of a task by its name; it is a :data:`training.task.MakeTask`."""
    assert name in TASKS, f"{name} is not one of {', '.join(TASKS)}"
    return importlib.import_module(f"tasks.{name}").TASK
