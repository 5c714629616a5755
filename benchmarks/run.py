"""Throughput of this project's configs on this machine: ``python -m benchmarks.run``.

Runs the entries of ``benchmarks.yml`` that are meant for this machine, one process after the other, and prints a table.
Graphcore's examples-utils, which needs a Poplar SDK, runs the same file.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from benchmarks.measuring import benchmark, command, markdown
from utilities.environment import graphcore_installed
from utilities.files import PROJECT

SYSTEMS = ("cpu", "gpu", "ipu")
TO_THE_END = "_conv"  # in the names of entries that train for days


def entries(system: str) -> dict[str, dict[str, Any]]:
    """Return the entries for a system by name."""
    content = yaml.safe_load((PROJECT / "benchmarks.yml").read_text(encoding="utf-8"))
    return {name: entry for name, entry in content.items() if entry.get("system") == system and "cmd" in entry}


def commands(name: str, entry: dict[str, Any]) -> dict[str, list[str]]:
    """Return the arguments of Python for each variant of an entry, by the variant's name."""
    header, *rows = entry.get("parameters") or [[], []]
    lines = {"_".join([name, *row]): entry["cmd"].format(**dict(zip(header, row))) for row in rows}
    return {variant: shlex.split(os.path.expandvars(line))[1:] for variant, line in lines.items()}


def figures(entry: dict[str, Any], log: str) -> list[float]:
    """Return the values of a log that the entry's output names."""
    reduced = []
    for _, name in entry["output"]:
        metric = entry["data"][name]
        values = [float(value.replace(",", "")) for value in re.findall(metric["regexp"], log)]
        kept = sorted(values)[metric.get("skip", 0) :]  # compilation makes the first periods the slowest
        reductions = {"mean": fmean(kept), "value": values[0], "final": values[-1]}
        reduced.append(reductions[metric.get("reduction_type", "mean")])
    return reduced


def detect_system() -> str:
    """Return ``ipu``, ``gpu`` or ``cpu``."""
    if graphcore_installed():
        return "ipu"
    from keras_extensions.backend import tf

    return "gpu" if tf.config.list_physical_devices("GPU") else "cpu"


@benchmark({"--list": {"action": "store_true", "help": "print the commands, and run nothing"}})
def main(options: argparse.Namespace) -> list[str]:
    chosen = {name: entry for name, entry in entries(detect_system()).items() if TO_THE_END not in name}
    if options.list:
        lines = [(variant, line) for name, entry in chosen.items() for variant, line in commands(name, entry).items()]
        return [f"{variant}\n    python3 {shlex.join(line)}" for variant, line in lines]
    rows = [["", *(label for label, _ in next(iter(chosen.values()))["output"])]]
    with tempfile.TemporaryDirectory() as folder:
        for name, entry in chosen.items():
            for variant, line in commands(name, entry).items():
                print(variant, file=sys.stderr, flush=True)
                log = Path(folder) / f"{variant}.log"
                command(*line, log=log)
                values = figures(entry, log.read_text(encoding="utf-8", errors="replace"))
                rows.append([variant, *(f"{value:,.4g}" for value in values)])
    return [markdown(rows)]


if __name__ == "__main__":
    sys.exit(main())
