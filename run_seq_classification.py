#!/usr/bin/env python3
# PYTHON_ARGCOMPLETE_OK
"""Fine-tune BERT on texts: ``python run_seq_classification.py --config configs/… --glue-task mrpc``; see ``--help``."""

from __future__ import annotations

import functools
import sys
import time

from tasks import run_config
from tasks.cli import main

TASK = "classification"
run = functools.partial(run_config, started=time.perf_counter())

if __name__ == "__main__":
    sys.exit(main(TASK, run))
