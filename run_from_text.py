#!/usr/bin/env python3
# PYTHON_ARGCOMPLETE_OK
"""Make a BERT from text in a given time: ``python run_from_text.py --text my/*.txt --hours 0.5``; see ``--help``."""

from __future__ import annotations

import sys
import time

STARTED = time.monotonic()

if __name__ == "__main__":
    from tasks.from_text.command import main

    sys.exit(main(None, STARTED))
