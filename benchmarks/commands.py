"""Processes of benchmarks: the product's own commands, and measurements in a process of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from utilities.errors import UserError

REPOSITORY = Path(__file__).resolve().parent.parent
LAST_LINES = 15
FRAMEWORKS = ("TF", "TORCH")  # as Transformers calls them


def command(*arguments: object, log: Path | None = None, **environment: str) -> None:
    """Run one of the product's commands.

    Args:
        log: the file that its output goes into; None: it is seen on standard error.
        environment: variables that differ there.

    Raises:
        UserError: it failed.
    """
    line, variables = [sys.executable, *map(str, arguments)], {**os.environ, **environment}
    if log is None:
        if subprocess.run(line, cwd=REPOSITORY, env=variables, stdout=sys.stderr, check=False).returncode:
            raise UserError(f"{' '.join(line)} failed, see above")
        return
    with log.open("w", encoding="utf-8") as file:
        done = subprocess.run(line, cwd=REPOSITORY, env=variables, stdout=file, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        show_last_lines(log.read_text(encoding="utf-8"))
        raise UserError(f"{' '.join(line[:2])} … failed; its last lines are above, all of them in {log}")


def measurement(*arguments: object, fix: str = "", **environment: str) -> Any:
    """Measure in a process of its own.

    Args:
        arguments: of Python; the last line that it prints is the result as JSON.
        fix: what one can do if it fails.
        environment: variables that differ there.

    Raises:
        UserError: it failed; its last lines are shown before.
    """
    line = [sys.executable, *map(str, arguments)]
    variables = {**os.environ, **environment}
    done = subprocess.run(line, cwd=REPOSITORY, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        show_last_lines(done.stderr)
        told = f"the measurement {' '.join(line)} ended with status {done.returncode}; its last lines are above"
        raise UserError(told + (f"; {fix}" if fix else ""))
    return json.loads(done.stdout.splitlines()[-1])


def only(framework: str) -> dict[str, str]:
    """The variables of a process in which Transformers loads one of ``FRAMEWORKS`` and not the other.

    Both are said: a process that has loaded TensorFlow passes on to all that it starts that PyTorch is not wanted.
    """
    assert framework in FRAMEWORKS
    return {f"USE_{name}": str(int(name == framework)) for name in FRAMEWORKS}


def show_last_lines(text: str) -> None:
    """What a process that failed said at the end."""
    print("\n".join(text.splitlines()[-LAST_LINES:]), file=sys.stderr)
