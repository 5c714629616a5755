"""The product's own commands, as benchmarks run them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from utilities.errors import UserError

REPOSITORY = Path(__file__).resolve().parent.parent
LAST_LINES = 15


def command(*arguments: object, log: Path | None = None) -> None:
    """Run one of the product's commands.

    Args:
        log: the file that its output goes into; None: it is seen on standard error.

    Raises:
        UserError: it failed.
    """
    line = [sys.executable, *map(str, arguments)]
    if log is None:
        if subprocess.run(line, cwd=REPOSITORY, stdout=sys.stderr, check=False).returncode:
            raise UserError(f"{' '.join(line)} failed, see above")
        return
    with log.open("w", encoding="utf-8") as file:
        done = subprocess.run(line, cwd=REPOSITORY, stdout=file, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        print("\n".join(log.read_text(encoding="utf-8").splitlines()[-LAST_LINES:]), file=sys.stderr)
        raise UserError(f"{' '.join(line[:2])} … failed; its last lines are above, all of them in {log}")
