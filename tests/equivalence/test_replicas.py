"""Two and four processes train like one: equal weights after three updates, with dropout, sharding and pipelines.

The tolerance is the same in mixed precision: processes compute the same micro batches, and sum their gradients in
float32. Muon is compared in float32 only: its products of bfloat16 numbers amplify the last digit of a sum where the
rank of a gradient is low, as that of the pooler's is with few samples.
"""

from __future__ import annotations

import functools
import subprocess
import sys

import numpy as np
import pytest

from execution.processes import SINGLE_PROCESS
from execution.software.precision import MIXED
from tests import ROOT
from tests.support.replica_cases import CASES, FURTHER, weights_after

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def by_one():
    """A function that returns weights and metrics of one process; each case is trained once."""
    return functools.lru_cache(maxsize=None)(lambda case: weights_after(case, SINGLE_PROCESS))


@pytest.fixture(
    scope="module",
    params=[(2, CASES), *(pytest.param((count, cases), marks=pytest.mark.long) for count, cases in FURTHER.items())],
    ids=["2 processes", "2 processes, further cases", "4 processes"],
)
def by_several(request, tmp_path_factory):
    """The folder of the weights of several processes, the number of processes, and their cases."""
    count, cases = request.param
    folder = tmp_path_factory.mktemp("processes")
    command = [sys.executable, "-m", "execution.launch", "--processes", str(count), "--"]
    command += ["-m", "tests.support.replica_cases", str(folder), *([] if cases is CASES else ["further"])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr[-6000:]
    return folder, count, cases


def test_several_processes_train_as_one(by_one, by_several):
    folder, _, cases = by_several
    for case in (case for case in cases if not case.resumed and (case.optimizer, case.precision) != ("Muon", MIXED)):
        weights, metrics = by_one(case._replace(sharded=False, pipelined=False))
        with np.load(folder / f"{case.name}-0.npz") as chief:
            for name, value in metrics.items():
                np.testing.assert_allclose(chief[f"metric_{name}"], value, rtol=1e-5, err_msg=f"{case.name} {name}")
            for name, value in weights.items():
                np.testing.assert_allclose(chief[name], value, rtol=1e-5, atol=1e-5, err_msg=f"{case.name} {name}")


def test_all_processes_hold_the_same_bits(by_several):
    folder, count, cases = by_several
    for case in cases:
        with np.load(folder / f"{case.name}-0.npz") as chief:
            for index in range(1, count):
                with np.load(folder / f"{case.name}-{index}.npz") as other:
                    for name in chief.files:
                        np.testing.assert_array_equal(chief[name], other[name], err_msg=f"{case.name} {name}")


def test_a_resumed_training_is_one_without_interruption_to_the_bit(by_several):
    folder, _, cases = by_several
    for case in (case for case in cases if case.resumed):
        paths = [folder / f"{one.name}-0.npz" for one in (case, case._replace(resumed=False))]
        with np.load(paths[0]) as again, np.load(paths[1]) as whole:
            weights = [name for name in whole.files if not name.startswith("metric_")]  # metrics are means of a `fit`
            for name in weights:
                np.testing.assert_array_equal(again[name], whole[name], err_msg=f"{case.name} {name}")
