"""Pre-trains until SIGTERM after logging STEP: ``python -m tests.support.interrupted_run STEP ARGUMENT…``."""

from __future__ import annotations

import sys

import pytest

from tasks.cli import main
from tests.support.runs import at_step, terminate

if __name__ == "__main__":
    step, *arguments = sys.argv[1:]
    with pytest.MonkeyPatch.context() as patch, at_step(patch, int(step), terminate):
        sys.exit(main("pretraining", arguments))
