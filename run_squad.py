#!/usr/bin/env python3
"""Fine-tune BERT on SQuAD 1.1 and score its answers: ``python run_squad.py --config configs/… [--dataset-dir …]``."""

from __future__ import annotations

import sys
import time

from tasks import runner
from utilities.cli import main

TASK = "squad"
run = runner(TASK, started=time.perf_counter())

if __name__ == "__main__":
    sys.exit(main(TASK, run))
