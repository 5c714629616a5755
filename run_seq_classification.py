#!/usr/bin/env python3
"""Fine-tune BERT on a GLUE or CLUE task: ``python run_seq_classification.py --config configs/… --glue-task mrpc``."""

from __future__ import annotations

import functools
import sys
import time

from tasks import run_config
from utilities.cli import main

TASK = "classification"
run = functools.partial(run_config, started=time.perf_counter())

if __name__ == "__main__":
    sys.exit(main(TASK, run))
