"""Whole runs through the double of Graphcore's packages, in a process of their own, which patches Keras.

    python -m tests.integration.graphcore_run RECORD TASK ARGUMENTS…  [-- TASK ARGUMENTS…]

What each run called is written to RECORD as JSON: a list of calls and the pipeline stage of each block.
"""

from __future__ import annotations

import enum
import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import run_pretraining
import run_seq_classification
import run_squad
from tests.unit.graphcore.computing import graphcore
from tests.unit.graphcore.double import Settings
from utilities.cli import main

RUNS: dict[str, Callable] = {
    "pretraining": run_pretraining.run,
    "squad": run_squad.run,
    "classification": run_seq_classification.run,
}


def plain(value: Any) -> Any:
    """What JSON has no form for."""
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, Settings):
        return value.to_dict()
    return value.name if type(value).__name__ == "DType" else type(value).__name__


def run(task: str, arguments: list[str]) -> dict[str, Any]:
    with graphcore() as (recorder, machine):
        status = main(task, RUNS[task], arguments)
    calls = [{"name": call.name, "arguments": call.arguments} for call in recorder.calls]
    return {"status": status, "calls": calls, "stages": machine.stages}


if __name__ == "__main__":
    record, *rest = sys.argv[1:]
    commands = [list(part) for divides, part in itertools.groupby(rest, lambda word: word == "--") if not divides]
    runs = [run(task, arguments) for task, *arguments in commands]
    Path(record).write_text(json.dumps(runs, default=plain), encoding="utf-8")
