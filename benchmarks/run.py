"""Throughput of this project's configs on this machine: ``python -m benchmarks.run``.

Runs the entries of ``benchmarks.yml`` that are meant for this machine, one process after the other, and prints a table.
The file has the form of Graphcore's examples-utils, which runs it too, on any system.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

import yaml

from benchmarks.measuring import (
    NOTHING,
    at_least_one,
    machine,
    machine_facts,
    markdown,
    module_parser,
)
from utilities.commands import run_main
from utilities.environment import graphcore_installed
from utilities.errors import UserError
from utilities.files import PROJECT
from utilities.secrets import mask

SPECIFICATION = PROJECT / "benchmarks.yml"
SYSTEMS = ("cpu", "gpu", "ipu")
TO_THE_END = "_conv"  # in the names of entries that train for days
LAST_LINES = 5  # of a failed process that are shown

ARGUMENTS: dict[str, dict[str, Any]] = {
    "--benchmark": {"nargs": "+", "metavar": "NAME", "help": "entries to run; default: those for this machine"},
    "--system": {"choices": SYSTEMS, "help": "run the entries for this system; default: that of this machine"},
    "--repeat": {"type": at_least_one, "default": 1, "help": "processes of each; the table has medians"},
    "--list": {"action": "store_true", "help": "print the commands, and run nothing"},
}


def entries(names: Sequence[str] | None, system: str) -> dict[str, dict[str, Any]]:
    """Return the entries to run by name: the named ones, otherwise those for a system.

    Raises:
        UserError: there is no entry of a name.
    """
    content = yaml.safe_load(SPECIFICATION.read_text(encoding="utf-8"))
    known = {name: entry for name, entry in content.items() if "cmd" in entry}
    for name in names or ():
        if name not in known:
            raise UserError(f"--benchmark {name}: there is no such benchmark; there are: {', '.join(known)}")
    if names:
        return {name: known[name] for name in names}
    return {name: entry for name, entry in known.items() if entry["system"] == system and TO_THE_END not in name}


def commands(name: str, entry: dict[str, Any]) -> dict[str, list[str]]:
    """Return the command of each variant of an entry by the variant's name; this Python runs them.

    Raises:
        UserError: an environment variable of the command is not set.
    """
    header, *rows = entry.get("parameters") or [[], []]
    made = {}
    for row in rows:
        parameters = dict(zip(header, row))
        words = shlex.split(os.path.expandvars(entry["cmd"].format(**parameters)))
        missing = next((word for word in words if "$" in word), None)
        if missing:
            raise UserError(f"{name}: {missing}: the environment variable is not set; export it")
        made["_".join([name, *row])] = [sys.executable, *words[1:]]
    return made


def figures(entry: dict[str, Any], log: str) -> dict[str, float]:
    """Return the figures of a log by label.

    Raises:
        UserError: the log lacks a figure.
    """
    reduced = {}
    for label, metric_name in entry["output"]:
        metric = entry["data"][metric_name]
        values = [float(value.replace(",", "")) for value in re.findall(metric["regexp"], log)]
        kept = sorted(values)[metric.get("skip", 0) :]  # compilation makes the first periods the slowest
        if not kept:
            raise UserError(f"the log has {len(values)} values of {label}; run longer")
        reductions = {"mean": fmean(kept), "value": values[0], "final": values[-1]}
        reduced[label] = reductions[metric.get("reduction_type", "mean")]
    return reduced


def run(command: Sequence[str], entry: dict[str, Any]) -> dict[str, float]:
    """Run one process, and return the figures of its log.

    Raises:
        UserError: it failed, or its log lacks a figure.
    """
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, errors="replace", check=False)
    log = mask(done.stdout + done.stderr)
    if done.returncode:
        raise UserError(f"status {done.returncode}: {' | '.join(log.splitlines()[-LAST_LINES:])}")
    return figures(entry, log)


def detect_system(facts: dict[str, Any]) -> str:
    """Return ``ipu``, ``gpu`` or ``cpu``."""
    if graphcore_installed():
        return "ipu"
    return "gpu" if facts["gpus"] else "cpu"


def measure(options: argparse.Namespace) -> int:
    """Run or list the entries; return 1 if a benchmark failed."""
    facts = machine_facts()
    measured: dict[str, dict[str, float]] = {}
    failed = False
    for name, entry in entries(options.benchmark, options.system or detect_system(facts)).items():
        for variant, command in commands(name, entry).items():
            if options.list:
                print(f"{variant}\n    {shlex.join(['python3', *command[1:]])}")
                continue
            print(variant, file=sys.stderr, flush=True)
            try:
                results = [run(command, entry) for _ in range(options.repeat)]
            except UserError as error:
                failed = True
                print(f"error: {variant}: {error}", file=sys.stderr)
                continue
            measured[variant] = {label: median(result[label] for result in results) for label in results[0]}
    if measured:
        labels = list(dict.fromkeys(label for row in measured.values() for label in row))
        rows = [
            [name, *(f"{row[label]:,.4g}" if label in row else NOTHING for label in labels)]
            for name, row in measured.items()
        ]
        print(f"{machine(facts)}\n\n{markdown([['', *labels], *rows])}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(run_main(module_parser(measure, ARGUMENTS), measure))
