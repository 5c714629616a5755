"""Reads from the environment which processes train together, without importing TensorFlow.

Kubernetes' training operators, cloud platforms and ``execution.launch`` set ``TF_CONFIG``; ``srun`` sets Slurm's
variables. Without either, this process trains alone.

Slurm's variables are read here because TensorFlow's ``SlurmClusterResolver`` calls ``scontrol``, which containers often
lack, and gives all jobs on a node the same ports.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import Any, List, Mapping, Optional, Tuple

from utilities.errors import UserError

TF_CONFIG = "TF_CONFIG"
TRAINING_JOBS = ("chief", "worker")  # in the order of the process numbers
EXAMPLE = '{"cluster": {"worker": ["host:port", …]}, "task": {"type": "worker", "index": 0}}'

TASKS, NODES, PER_NODE = "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE"
PROCESS = "SLURM_PROCID"  # the number of this task
FIRST_PORT, PORTS = 12000, 16000  # below the range of ports that Linux uses for outgoing connections

_REPEATED = re.compile(r"(\d+)(?:\(x(\d+)\))?")  # 2(x3): three nodes with 2 tasks each
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")  # 08-10


@dataclass(frozen=True)
class Membership:
    """The processes of a run: ``host:port`` of each by number, at most one of a single process; this one's number."""

    addresses: Tuple[str, ...] = ()
    index: int = 0

    @property
    def count(self) -> int:
        return max(len(self.addresses), 1)

    @property
    def numbers(self) -> Tuple[int, int]:
        return self.count, self.index

    @property
    def others(self) -> List[int]:
        return [number for number in range(self.count) if number != self.index]

    @property
    def is_on_loopback(self) -> bool:
        """Whether all processes reach each other by a loopback address, so that none is on another machine."""
        hosts = [host_and_port(address)[0] for address in self.addresses]
        return all(host in ("localhost", "::1") or host.startswith("127.") for host in hosts)


def host_and_port(address: str) -> Tuple[str, int]:
    """Split ``host:port``; the host may be an IPv6 address in brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def read_membership(environment: Mapping[str, str] = os.environ) -> Membership:
    """Read the processes of the run from ``TF_CONFIG``, or else from Slurm's variables."""
    if environment.get(TF_CONFIG, "").strip():
        return _read_tf_config(environment[TF_CONFIG])
    addresses = slurm_addresses(environment)
    if addresses is None:
        return Membership()
    index = _slurm_number(environment, PROCESS)
    if index >= len(addresses):
        raise UserError(f"Slurm: {PROCESS}={index} is not below {TASKS}={len(addresses)}; start with srun")
    return Membership(tuple(addresses), index)


def shares(micro_batches: int, count: int) -> str:
    """Say how processes share the micro batches of an update, or that they cannot."""
    parts = f"{micro_batches:,} micro batches of an update"
    if count == 1:
        return f"1; {parts}, which processes may share (python -m execution.launch)"
    share = f"{micro_batches // count:,} of the" if micro_batches % count == 0 else "cannot be shared evenly:"
    return f"{count}, each {share} {parts}"


def tf_config(membership: Membership) -> str:
    cluster = {"worker": list(membership.addresses)}
    return json.dumps({"cluster": cluster, "task": {"type": "worker", "index": membership.index}})


def _read_tf_config(text: str) -> Membership:
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"TF_CONFIG is not JSON ({error}); set it to {EXAMPLE}, or unset it") from error
    if not isinstance(config, dict):
        raise UserError(f"TF_CONFIG is not a JSON object; set it to {EXAMPLE}, or unset it")
    if not config.get("cluster"):  # some platforms also set it on single machines
        return Membership()
    addresses, starts = _addresses(config["cluster"])
    kind, index = _task(config)
    if kind not in starts:
        raise UserError(
            f"TF_CONFIG: task type {kind!r} is not a process of this cluster ({', '.join(starts)}); start the program"
            " only as chief or worker"
        )
    if not 0 <= index < len(_job(config["cluster"], kind)):
        raise UserError(f"TF_CONFIG: task index {index} is not below the number of its {kind} addresses; correct it")
    return Membership(tuple(addresses), starts[kind] + index)


def _addresses(cluster: Any) -> Tuple[List[str], Mapping[str, int]]:
    """Return all addresses, and the number of the first process of each job."""
    if not isinstance(cluster, dict):
        raise UserError(f"TF_CONFIG: cluster is not an object of jobs; set it to {EXAMPLE}")
    addresses: List[str] = []
    starts = {}
    for job in TRAINING_JOBS:
        job_addresses = _job(cluster, job)
        if job_addresses:
            starts[job] = len(addresses)
            addresses += job_addresses
    if not addresses:
        raise UserError(f"TF_CONFIG: cluster has no chief or worker ({', '.join(cluster)}); set it to {EXAMPLE}")
    if len(set(addresses)) < len(addresses):
        raise UserError("TF_CONFIG: cluster names an address twice; give every process a host:port of its own")
    return addresses, starts


def _job(cluster: Mapping[str, Any], job: str) -> List[str]:
    """Return the addresses of a job, given as a list or as an object from index to address."""
    addresses = cluster.get(job) or []
    if isinstance(addresses, dict) and all(key.isdecimal() for key in addresses):
        addresses = [addresses[key] for key in sorted(addresses, key=int)]
    if not isinstance(addresses, list) or not all(isinstance(one, str) and _is_address(one) for one in addresses):
        raise UserError(f'TF_CONFIG: {job} is not a list of "host:port"; set it to {EXAMPLE}')
    return addresses


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and bool(re.fullmatch("[0-9]{1,5}", port)) and 0 < int(port) < 1 << 16


def _task(config: Mapping[str, Any]) -> Tuple[str, int]:
    task = config.get("task")
    try:
        assert isinstance(task, dict)
        return str(task["type"]), int(task["index"])  # an index may be a number or a text
    except (AssertionError, KeyError, TypeError, ValueError, OverflowError):
        raise UserError(
            f"TF_CONFIG: task does not specify type and index of this process; set it to {EXAMPLE}"
        ) from None


def slurm_addresses(environment: Mapping[str, str]) -> Optional[List[str]]:
    """Return ``host:port`` of every task of a Slurm job step, by task number; None if there is only one task.

    Only programs started by ``srun`` are job steps; a batch script is not.
    """
    count = _slurm_number(environment, TASKS, "1")
    if count < 2 or PROCESS not in environment:
        return None
    hosts, tasks = host_names(environment.get(NODES, "")), tasks_per_node(environment.get(PER_NODE, ""))
    if len(hosts) != len(tasks) or sum(tasks) != count:
        raise UserError(
            f"Slurm: {NODES}={environment.get(NODES)} and {PER_NODE}={environment.get(PER_NODE)} do not make {count}"
            " tasks; start with srun, or set TF_CONFIG"
        )
    # The job id is part of the port, so jobs on one node do not share ports.
    job, step = (_slurm_number(environment, name, "0") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
    first = FIRST_PORT + (job * 131 + step * 17) % PORTS
    return [f"{host}:{first + number}" for host, own in zip(hosts, tasks) for number in range(own)]


def _slurm_number(environment: Mapping[str, str], name: str, default: str = "") -> int:
    text = environment.get(name, default)
    if not re.fullmatch("[0-9]+", text):
        raise UserError(f"Slurm: {name}={text} is not a whole number; start with srun, or set TF_CONFIG")
    return int(text)


def host_names(text: str) -> List[str]:
    """Expand the host names of Slurm's short form: node[08-09,12]-ib becomes node08-ib, node09-ib and node12-ib."""
    names: List[str] = []
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        expanded = [""]
        for plain, ranges in re.findall(r"([^\[]+)|\[([^\]]*)\]", part):
            endings = _numbers(ranges) if ranges else [plain]
            expanded = [begin + ending for begin in expanded for ending in endings]
        names += expanded
    return names


def tasks_per_node(text: str) -> List[int]:
    """Expand the number of tasks on each node: "2(x3),1" becomes [2, 2, 2, 1]."""
    return [int(tasks) for tasks, times in _REPEATED.findall(text) for _ in range(int(times or 1))]


def _numbers(ranges: str) -> List[str]:
    """Expand ``08-10,12``, keeping leading zeros."""
    numbers: List[str] = []
    for first, last in _RANGE.findall(ranges):
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last or first) + 1)]
    return numbers
