"""Runs training commands on the double of Graphcore's packages, in a separate process, because it patches Keras.

    python -m tests.support.graphcore_run RECORD TASK ARGUMENTS…  [-- TASK ARGUMENTS…]

First, every module that a training run can reach is imported, and its names from TensorFlow are looked up. The calls of
each run are written to RECORD as JSON. It also runs on Graphcore's versions, Python 3.8 with TensorFlow 2.6.
"""

from __future__ import annotations

import enum
import importlib
import itertools
import json
import sys
from pathlib import Path
from typing import Any

from keras_extensions.backend import keras, tf
from tasks.cli import main
from tests.support.graphcore.computing import graphcore
from tests.support.graphcore.double import Settings
from tests.support.graphcore.training_path import missing_names, training_path


def plain(value: Any) -> Any:
    """Convert a value that JSON cannot represent."""
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, Settings):
        return value.to_dict()
    return value.name if type(value).__name__ == "DType" else type(value).__name__


def run(task: str, arguments: list[str]) -> dict[str, Any]:
    with graphcore() as recorder:
        status = main(task, arguments)
    return {"status": status, "calls": [{"name": call.name, "arguments": call.arguments} for call in recorder.calls]}


if __name__ == "__main__":
    record, *rest = sys.argv[1:]
    with graphcore():
        for module, file in training_path().items():
            importlib.import_module(module)
            assert not missing_names(file, {"tf": tf, "keras": keras})
    commands = [list(part) for divides, part in itertools.groupby(rest, lambda word: word == "--") if not divides]
    runs = [run(task, arguments) for task, *arguments in commands]
    Path(record).write_text(json.dumps(runs, default=plain), encoding="utf-8")
