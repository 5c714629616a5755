"""The product's own commands, as benchmarks run them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from utilities.errors import UserError

REPOSITORY = Path(__file__).resolve().parent.parent


def command(*arguments: object) -> None:
    """Run one of the product's commands; its output is seen on standard error.

    Raises:
        UserError: it failed.
    """
    line = [sys.executable, *map(str, arguments)]
    if subprocess.run(line, cwd=REPOSITORY, stdout=sys.stderr, check=False).returncode:
        raise UserError(f"{' '.join(line)} failed, see above")
