#!/usr/bin/env python3
# PYTHON_ARGCOMPLETE_OK
"""Fine-tune BERT on texts: ``python run_seq_classification.py --config configs/… --glue-task mrpc``; see ``--help``."""

import sys

from tasks.cli import main

if __name__ == "__main__":
    sys.exit(main("classification"))
