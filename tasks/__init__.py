"""The tasks: a file each, with data, model, losses, metrics, evaluation and outputs.

``model.architecture.TASKS`` is their registry: it says what configs, plans and checkpoints need to know of each before
its model is built. The class of a task is the ``TASK`` of ``tasks/<name>.py``.
"""

from __future__ import annotations

import importlib
from typing import Any, Callable

from model.architecture import TASKS
from utilities.config.loading import LoadedConfig


def task_class(name: str) -> Any:
    """Return the class of a task by its name, as :data:`training.task.MakeTask`."""
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
