"""Starts a command of this project from any folder: ``python /path/to/start.py data_utils.text --help``."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    del sys.argv[0]
    path = Path(__file__).resolve().parent.joinpath(*sys.argv[0].split(".")) if sys.argv else None
    if path is None or not (path.is_dir() or path.with_suffix(".py").is_file()):
        print("error: name a command, such as data_utils.text or tasks.classify, and its arguments", file=sys.stderr)
        sys.exit(2)
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
