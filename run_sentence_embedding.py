#!/usr/bin/env python3
# PYTHON_ARGCOMPLETE_OK
"""Train BERT to embed sentences: ``python run_sentence_embedding.py --config configs/…``; see ``--help``."""

import sys

from tasks.cli import main

if __name__ == "__main__":
    sys.exit(main("sentence_embedding"))
