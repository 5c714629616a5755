#!/usr/bin/env python3
# PYTHON_ARGCOMPLETE_OK
"""Pre-train BERT: ``python run_pretraining.py --config configs/… [--dataset-dir …]``; see ``--help``."""

import sys

from tasks.cli import main

if __name__ == "__main__":
    sys.exit(main("pretraining"))
