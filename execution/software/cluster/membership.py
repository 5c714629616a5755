"""Who this process is among how many, as the environment says. Imports no TensorFlow.

``TF_CONFIG`` is what Kubernetes' training operators, cloud platforms and the launcher here set; ``srun`` sets Slurm's
variables. Without either a process is alone.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any, List, Mapping, Tuple

from execution.software.cluster.slurm import slurm_addresses
from utilities.errors import UserError

TF_CONFIG = "TF_CONFIG"
TRAINING_JOBS = ("chief", "worker")  # in the order in which replicas are numbered
FORM = '{"cluster": {"worker": ["host:port", …]}, "task": {"type": "worker", "index": 0}}'


@dataclass(frozen=True)
class Membership:
    """One process among those of a run.

    Attributes:
        addresses: ``host:port`` of every process, in the order of their numbers; at most one where it is alone.
        index: the number of this one; number 0 is the chief, which alone writes files.
    """

    addresses: Tuple[str, ...] = ()
    index: int = 0

    @property
    def count(self) -> int:
        """Processes of the run."""
        return max(len(self.addresses), 1)


def membership_of(environment: Mapping[str, str] = os.environ) -> Membership:
    """Who a process with these environment variables is.

    Raises:
        UserError: ``TF_CONFIG`` is no such description, or names a job that is no replica.

    Example:
        >>> membership_of({"TF_CONFIG": tf_config(Membership(("a:1", "b:1"), 1))})
        Membership(addresses=('a:1', 'b:1'), index=1)
    """
    if environment.get(TF_CONFIG, "").strip():
        return _of_tf_config(environment[TF_CONFIG])
    addresses = slurm_addresses(environment)
    if addresses is None:
        return Membership()
    return Membership(tuple(addresses), int(environment["SLURM_PROCID"]))


def tf_config(membership: Membership) -> str:
    """The text of ``TF_CONFIG`` for one process."""
    cluster = {"worker": list(membership.addresses)}
    return json.dumps({"cluster": cluster, "task": {"type": "worker", "index": membership.index}})


def _of_tf_config(text: str) -> Membership:
    try:
        config = json.loads(text)
    except ValueError as error:
        raise UserError(f"TF_CONFIG is no JSON ({error}); set it to {FORM}, or unset it") from error
    if not isinstance(config, dict):
        raise UserError(f"TF_CONFIG is no JSON object; set it to {FORM}, or unset it")
    if not config.get("cluster"):  # some platforms set it for single machines, too
        return Membership()
    addresses, starts = _addresses(config["cluster"])
    kind, index = _task(config)
    if kind not in starts:
        raise UserError(
            f"TF_CONFIG: task type {kind!r} is no replica of this cluster ({', '.join(starts)}); start the program only"
            " as chief or worker"
        )
    if not 0 <= index < len(_job(config["cluster"], kind)):
        raise UserError(f"TF_CONFIG: task index {index} is not below the number of its {kind} addresses; correct it")
    return Membership(tuple(addresses), starts[kind] + index)


def _addresses(cluster: Any) -> Tuple[List[str], Mapping[str, int]]:
    """All replicas' addresses, and the number of the first one of each job."""
    if not isinstance(cluster, dict):
        raise UserError(f"TF_CONFIG: cluster is no object of jobs; set it to {FORM}")
    addresses: List[str] = []
    starts = {}
    for job in TRAINING_JOBS:
        found = _job(cluster, job)
        if found:
            starts[job] = len(addresses)
            addresses += found
    if not addresses:
        raise UserError(f"TF_CONFIG: cluster names no worker ({', '.join(cluster)}); set it to {FORM}")
    if len(set(addresses)) < len(addresses):
        raise UserError("TF_CONFIG: cluster names an address twice; give every process a host:port of its own")
    return addresses, starts


def _job(cluster: Mapping[str, Any], job: str) -> List[str]:
    """Addresses of a job: a list, or an object from index to address."""
    found = cluster.get(job) or []
    found = [found[key] for key in sorted(found, key=int)] if isinstance(found, dict) else found
    if not isinstance(found, list) or not all(isinstance(one, str) and ":" in one for one in found):
        raise UserError(f'TF_CONFIG: {job} is no list of "host:port"; set it to {FORM}')
    return found


def _task(config: Mapping[str, Any]) -> Tuple[str, int]:
    task = config.get("task")
    try:
        assert isinstance(task, dict)
        return str(task["type"]), int(task["index"])  # an index comes as a number or as text
    except (AssertionError, KeyError, TypeError, ValueError):
        raise UserError(f"TF_CONFIG: task does not say type and index of this process; set it to {FORM}") from None
