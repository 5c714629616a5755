#!/usr/bin/env python3
# PYTHON_ARGCOMPLETE_OK
"""Fine-tune BERT on named entities: ``python run_token_classification.py --config configs/… --dataset-dir …``."""

from __future__ import annotations

import functools
import sys
import time

from tasks import run_config
from tasks.cli import main

TASK = "token_classification"
run = functools.partial(run_config, started=time.perf_counter())

if __name__ == "__main__":
    sys.exit(main(TASK, run))
