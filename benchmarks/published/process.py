"""One run of one variant: the command, its process, and its log."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.published.spec import Benchmark
from utilities.errors import UserError
from utilities.secrets import mask

PYTHONS = ("python", "python3")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


@dataclass(frozen=True)
class Outcome:
    """How a process ended.

    Attributes:
        log: what it wrote to standard output, then to standard error.
        seconds: from start to end.
    """

    status: int
    log: str
    seconds: float


def command_of(benchmark: Benchmark, parameters: Mapping[str, str], environment: Mapping[str, str]) -> list[str]:
    """The words of the command, parameters and variables filled in; Python is the one that runs this.

    Raises:
        UserError: a parameter or variable is not there.
    """
    where = f"{benchmark.name}.cmd"
    try:
        text = benchmark.command.format(**parameters)
        words = shlex.split(text)
    except (KeyError, IndexError, ValueError) as error:
        raise UserError(f"{where}: {error} cannot be filled in; add it to parameters, or correct cmd") from error
    known = {**environment, **benchmark.environment}
    filled = [_VARIABLE.sub(lambda match: _variable(match, known, where), word) for word in words]
    return [sys.executable if word in PYTHONS else word for word in filled]


def _variable(match: re.Match[str], known: Mapping[str, str], where: str) -> str:
    name = match.group(1) or match.group(2)
    if name not in known:
        raise UserError(f"{where}: the environment variable {name} is not set; run: export {name}=/path")
    return known[name]


def run(benchmark: Benchmark, command: list[str], logs: Path, timeout: float | None = None) -> Outcome:
    """Runs a command in the benchmark's folder; its output is kept in ``logs``, secrets masked.

    Raises:
        UserError: there is no such program, or the logs cannot be written.
    """
    started = time.perf_counter()
    try:
        logs.mkdir(parents=True, exist_ok=True)
        result = subprocess.run(
            command,
            cwd=benchmark.folder,
            env={**os.environ, **benchmark.environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
        status, out, errors = result.returncode, result.stdout, result.stderr
    except subprocess.TimeoutExpired as expired:
        status, out, errors = 124, expired.stdout or b"", expired.stderr or b""
    except OSError as error:
        raise UserError(f"{benchmark.name}: cannot run {command[0]} ({error.strerror}); correct cmd") from error
    texts = [mask(stream.decode("utf-8", "replace")) for stream in (out, errors)]
    for name, text in zip(("stdout.log", "stderr.log"), texts):
        (logs / name).write_text(text, encoding="utf-8")
    return Outcome(status, "\n".join(texts), time.perf_counter() - started)
