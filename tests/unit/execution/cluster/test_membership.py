"""A process' membership is read from TF_CONFIG and from Slurm's variables."""

from __future__ import annotations

import json

import pytest

from execution.software.cluster.membership import (
    Membership,
    host_names,
    read_membership,
    slurm_addresses,
    tasks_per_node,
    tf_config,
)
from utilities.errors import UserError


def member_by_tf_config(config: object) -> Membership:
    return read_membership({"TF_CONFIG": config if isinstance(config, str) else json.dumps(config)})


def cluster(workers: object, kind: object = "worker", index: object = 0) -> dict[str, object]:
    return {"cluster": {"worker": workers}, "task": {"type": kind, "index": index}}


KUBERNETES = {"chief": ["chief-0.ns.svc:2222"], "worker": ["worker-0.ns.svc:2222", "worker-1.ns.svc:2222"]}
LAUNCHED = Membership(("localhost:1", "localhost:2"), 1)


@pytest.mark.parametrize(
    ("config", "member"),
    [
        ("", Membership()),
        ('{"cluster": {}}', Membership()),
        (cluster(["a:1", "b:2", "c:3"], index=2), Membership(("a:1", "b:2", "c:3"), 2)),
        (cluster({"1": "b:1", "0": "a:1", "10": "c:1"}, index=1), Membership(("a:1", "b:1", "c:1"), 1)),
        (tf_config(LAUNCHED), LAUNCHED),
        (
            {"cluster": KUBERNETES, "task": {"type": "worker", "index": "1"}, "environment": "cloud"},
            Membership((*KUBERNETES["chief"], *KUBERNETES["worker"]), 2),
        ),
        (
            {"cluster": KUBERNETES, "task": {"type": "chief", "index": 0}},
            Membership((*KUBERNETES["chief"], *KUBERNETES["worker"]), 0),
        ),
    ],
    ids=["empty", "without processes", "workers", "by number", "of the launcher", "Kubernetes", "Kubernetes, chief"],
)
def test_members_by_tf_config(config, member):
    assert member_by_tf_config(config) == member


@pytest.mark.parametrize(
    ("addresses", "is_on_loopback"),
    [
        (("localhost:1", "127.0.0.1:2", "[::1]:3"), True),
        (("localhost:1", "node-b:1"), False),
        (("10.0.0.1:1", "10.0.0.1:2"), False),
    ],
)
def test_processes_on_the_loopback_interface(addresses, is_on_loopback):
    assert Membership(addresses).is_on_loopback == is_on_loopback


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ({"cluster": ["a:1"]}, "cluster"),
        ({"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 0}}, "has no chief or worker"),
        (cluster("a:1"), "worker is not a list"),
        (cluster(["a:99999", "b:1"]), "TF_CONFIG"),
        (cluster(["a:1", "a:1"]), "twice"),
        ({"cluster": {"worker": ["a:1"]}}, "task"),
        (cluster(["a:1"], index=1), "task index 1"),
        (cluster(["a:1", "b:1"], index="first"), "TF_CONFIG"),
        (cluster(["a:1"], kind="evaluator"), "'evaluator'"),
    ],
)
def test_errors_in_tf_config_are_one_line(config, names):
    with pytest.raises(UserError, match="TF_CONFIG") as caught:
        member_by_tf_config(config)
    assert names in str(caught.value) and "\n" not in str(caught.value)


STEP = {
    "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_STEP_NODELIST": "node[08-09],big",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
    "SLURM_PROCID": "3",
    "SLURM_JOB_ID": "71",
    "SLURM_STEP_ID": "0",
}


def test_a_slurm_step():
    member = read_membership(STEP)
    assert member.index == 3
    hosts = [address.rsplit(":", 1)[0] for address in member.addresses]
    assert hosts == ["node08", "node08", "node09", "node09", "big"]
    assert len(set(member.addresses)) == 5
    ports = [int(address.rsplit(":", 1)[1]) for address in member.addresses]
    assert all(1024 < port < 32768 for port in ports)


def test_jobs_on_the_same_nodes_have_different_ports():
    assert set(slurm_addresses(STEP) or []).isdisjoint(slurm_addresses({**STEP, "SLURM_JOB_ID": "72"}) or [])


def test_tf_config_takes_precedence_over_slurm():
    assert read_membership({**STEP, "TF_CONFIG": json.dumps(cluster(["a:1", "b:1"]))}).addresses == ("a:1", "b:1")


def test_a_process_without_variables_or_in_a_batch_script_is_alone():
    assert read_membership({}) == Membership((), 0) and Membership().count == 1
    assert read_membership({"SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_JOB_ID": "1"}).count == 1
    assert read_membership({**STEP, "SLURM_STEP_NUM_TASKS": "1"}).count == 1


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"SLURM_STEP_TASKS_PER_NODE": "2(x2)"}, "Slurm"),
        ({"SLURM_PROCID": "5"}, "Slurm"),
        ({"SLURM_STEP_NUM_TASKS": "many"}, "SLURM_STEP_NUM_TASKS"),
    ],
)
def test_contradictory_slurm_variables_are_refused(changes, names):
    with pytest.raises(UserError, match=names):
        read_membership({**STEP, **changes})


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ["a"]),
        ("a,b-1", ["a", "b-1"]),
        ("n[1-3,7]", ["n1", "n2", "n3", "n7"]),
        ("n[009-011]", ["n009", "n010", "n011"]),
        ("r[1-2]n[1-2],x", ["r1n1", "r1n2", "r2n1", "r2n2", "x"]),
        ("n[1,3]-ib.cluster", ["n1-ib.cluster", "n3-ib.cluster"]),
    ],
)
def test_host_lists(text, names):
    assert host_names(text) == names


def test_tasks_per_node():
    assert tasks_per_node("3") == [3]
    assert tasks_per_node("2(x3),1,4(x2)") == [2, 2, 2, 1, 4, 4]
