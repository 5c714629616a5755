"""The processes of a Slurm job step, from the variables that ``srun`` sets for each of them.

Written here because TensorFlow's ``SlurmClusterResolver`` calls ``scontrol``, which containers often lack, and gives
every job on a node the same ports.
"""

from __future__ import annotations

import re
from typing import List, Mapping, Optional

from utilities.errors import UserError

TASKS, NODES, PER_NODE = "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE"
FIRST_PORT, PORTS = 12000, 16000  # below the range from which Linux takes ports for outgoing connections

_GROUP = re.compile(r"(\d+)(?:\(x(\d+)\))?")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def slurm_addresses(environment: Mapping[str, str]) -> Optional[List[str]]:
    """``host:port`` of every task of the job step, by their numbers; None outside of one with several tasks.

    A batch script itself is no job step: only what ``srun`` starts is.

    Raises:
        UserError: the variables contradict one another.
    """
    count = int(environment.get(TASKS, "1"))
    if count < 2 or "SLURM_PROCID" not in environment:
        return None
    hosts, tasks = host_names(environment.get(NODES, "")), tasks_per_node(environment.get(PER_NODE, ""))
    if len(hosts) != len(tasks) or sum(tasks) != count:
        raise UserError(
            f"Slurm: {NODES}={environment.get(NODES)} and {PER_NODE}={environment.get(PER_NODE)} do not make {count}"
            " tasks; start with srun, or set TF_CONFIG"
        )
    # Jobs that share a node get other ports, as their ids differ.
    job = int(environment.get("SLURM_JOB_ID", "0")) * 131 + int(environment.get("SLURM_STEP_ID", "0")) * 17
    first = FIRST_PORT + job % PORTS
    return [f"{host}:{first + number}" for host, own in zip(hosts, tasks) for number in range(own)]


def host_names(text: str) -> List[str]:
    """The hosts of Slurm's short form.

    Example:
        >>> host_names("login,node[08-10,12]-ib")
        ['login', 'node08-ib', 'node09-ib', 'node10-ib', 'node12-ib']
    """
    names: List[str] = []
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        expanded = [""]
        for plain, ranges in re.findall(r"([^\[]+)|\[([^\]]*)\]", part):
            endings = _numbers(ranges) if ranges else [plain]
            expanded = [begin + ending for begin in expanded for ending in endings]
        names += expanded
    return names


def tasks_per_node(text: str) -> List[int]:
    """The number of tasks on each node.

    Example:
        >>> tasks_per_node("2(x3),1")
        [2, 2, 2, 1]
    """
    return [int(tasks) for tasks, times in _GROUP.findall(text) for _ in range(int(times or 1))]


def _numbers(ranges: str) -> List[str]:
    """``08-10,12``, with the zeros that are written."""
    found: List[str] = []
    for first, last in _RANGE.findall(ranges):
        found += [str(number).zfill(len(first)) for number in range(int(first), int(last or first) + 1)]
    return found
