"""The tasks: one file each, with data, model, losses, metrics, evaluation and outputs.

``model.architecture.TASKS`` is their registry, with what configs, plans and checkpoints need to know about a task
before its model is built. The class of a task is ``TASK`` in ``tasks/<name>.py``.

To add a fine-tuning task: read its data in ``data_utils``, derive its class from :class:`tasks.fine_tuning.FineTuning`,
add a row to the registry, and write a script like ``run_squad.py`` and a config.
"""

from __future__ import annotations

import importlib
from typing import Any, Callable

from model.architecture import TASKS
from utilities.config.loading import LoadedConfig


def task_class(name: str) -> Any:
    """Return the class of a task by its name; it is a :data:`training.task.MakeTask`."""
    assert name in TASKS, f"{name} is not one of {', '.join(TASKS)}"
    return importlib.import_module(f"tasks.{name}").TASK


def runner(name: str, started: float) -> Callable[[LoadedConfig], None]:
    """Return the function that trains and evaluates a task.

    Args:
        name: name of the task.
        started: ``time.perf_counter()`` when the program started.
    """

    def run(loaded: LoadedConfig) -> None:
        # TensorFlow is imported here, so that plans and errors of the config come at once.
        from training.seeds import train_with_seeds

        train_with_seeds(loaded, task_class(name), started)

    return run
