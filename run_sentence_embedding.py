#!/usr/bin/env python3
# PYTHON_ARGCOMPLETE_OK
"""Train BERT to embed sentences: ``python run_sentence_embedding.py --config configs/…``; see ``--help``."""

from __future__ import annotations

import functools
import sys
import time

from tasks import run_config
from tasks.cli import main

TASK = "sentence_embedding"
run = functools.partial(run_config, started=time.perf_counter())

if __name__ == "__main__":
    sys.exit(main(TASK, run))
