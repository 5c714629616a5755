#!/usr/bin/env python3
# PYTHON_ARGCOMPLETE_OK
"""Pre-train BERT: ``python run_pretraining.py --config configs/… [--dataset-dir …]``; see ``--help``."""

from __future__ import annotations

import functools
import sys
import time

from tasks import run_config
from tasks.cli import main

TASK = "pretraining"
run = functools.partial(run_config, started=time.perf_counter())

if __name__ == "__main__":
    sys.exit(main(TASK, run))
