#!/usr/bin/env python3
# PYTHON_ARGCOMPLETE_OK
"""Fine-tune BERT on SQuAD 1.1 and score its answers: ``python run_squad.py --config configs/… [--dataset-dir …]``."""

import sys

from tasks.cli import main

if __name__ == "__main__":
    sys.exit(main("squad"))
