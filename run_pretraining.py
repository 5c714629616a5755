#!/usr/bin/env python3
"""Pre-train BERT: ``python run_pretraining.py --config configs/… [--dataset-dir …]``; see ``--help``."""

from __future__ import annotations

import sys
import time

from tasks import runner
from utilities.cli import main

TASK = "pretraining"
run = runner(TASK, started=time.perf_counter())

if __name__ == "__main__":
    sys.exit(main(TASK, run))
