#!/usr/bin/env python3
# PYTHON_ARGCOMPLETE_OK
"""Fine-tune BERT on named entities: ``python run_token_classification.py --config configs/… --dataset-dir …``."""

import sys

from tasks.cli import main

if __name__ == "__main__":
    sys.exit(main("token_classification"))
