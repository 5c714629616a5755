"""Starts a command of this project from any folder: ``python /path/to/start.py data_utils.text --help``."""

from __future__ import annotations

import runpy
import sys

if __name__ == "__main__":
    del sys.argv[0]
    if not sys.argv:
        sys.exit("error: name a command, such as data_utils.text or tasks.classify, and its arguments")
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
