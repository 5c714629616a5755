"""The machine that figures were measured on, described so that others can compare theirs."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from typing import Any

from utilities.environment import environment_facts

# What decides the figures; the commit and the kernel do not.
HARDWARE = ("cpu", "cpu_cores_usable", "memory_gib", "gpus")


def describe_machine() -> dict[str, Any]:
    """CPU, cores, memory, GPUs with their drivers, system, and versions of the libraries."""
    facts = environment_facts()
    facts["gpus"] = gpus()
    return facts


def gpus() -> list[str]:
    """Name, memory and driver of each NVIDIA GPU, as its driver's own tool tells."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    query = [tool, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        output = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [f"{name}, {memory}, driver {driver}" for name, memory, driver in _fields(output)]


def _fields(output: str) -> list[list[str]]:
    rows = [[field.strip() for field in line.split(",")] for line in output.splitlines()]
    return [row for row in rows if len(row) == 3]


def system_of(facts: dict[str, Any]) -> str:
    """``ipu``, ``gpu`` or ``cpu``: what to measure on this machine unless told otherwise."""
    if importlib.util.find_spec("ipu_tensorflow_addons") is not None:
        return "ipu"
    return "gpu" if facts.get("gpus") else "cpu"


def title_of(facts: dict[str, Any]) -> str:
    """The machine in one line."""
    boards = [gpu.split(",")[0] for gpu in facts.get("gpus") or []]
    counted = [f"{boards.count(name)} × {name}" for name in dict.fromkeys(boards)]
    memory = facts.get("memory_gib")
    parts = [*counted, f"{facts.get('cpu')}", f"{facts.get('cpu_cores_usable')} cores"]
    return ", ".join([*parts, *([f"{memory:.0f} GiB"] if memory else [])])


def file_name_of(facts: dict[str, Any]) -> str:
    """A file name for the machine's results: the same for machines that are alike."""
    return re.sub(r"[^a-z0-9]+", "-", title_of(facts).lower()).strip("-")[:100]


def description(facts: dict[str, Any]) -> list[str]:
    """The machine in full, a line a fact."""
    packages = ", ".join(f"{name} {version}" for name, version in (facts.get("packages") or {}).items())
    lines = [f"{name.replace('_', ' ')}: {_text(facts.get(name))}" for name in HARDWARE]
    lines.append(f"instruction sets: {_text(facts.get('cpu_instruction_sets'))}")
    return [*lines, f"system: {facts.get('os')}, Python {facts.get('python')}", f"libraries: {packages}"]


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "; ".join(map(str, value)) or "none"
    return "unknown" if value is None else str(value)
