#!/usr/bin/env python3
# PYTHON_ARGCOMPLETE_OK
"""Fine-tune BERT on SQuAD 1.1 and score its answers: ``python run_squad.py --config configs/… [--dataset-dir …]``."""

from __future__ import annotations

import functools
import sys
import time

from tasks import run_config
from tasks.cli import main

TASK = "squad"
run = functools.partial(run_config, started=time.perf_counter())

if __name__ == "__main__":
    sys.exit(main(TASK, run))
