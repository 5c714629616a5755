"""Two and four processes train as one does: weights after three updates, with dropout, sharded or not, as pipelines."""

from __future__ import annotations

import functools
import subprocess
import sys

import numpy as np
import pytest

from execution.processes import SINGLE_PROCESS
from tests import ROOT
from tests.equivalence.replica_cases import cases_of, weights_after


@pytest.fixture(scope="module")
def by_one():
    """Gives weights and metrics of one process; each case is trained once."""
    return functools.lru_cache(maxsize=None)(lambda case: weights_after(case, SINGLE_PROCESS))


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.long)])
def by_several(request, tmp_path_factory):
    """Where the processes of one start have put the weights of their cases, and how many they are."""
    folder = tmp_path_factory.mktemp(f"replicas-{request.param}")
    command = [sys.executable, "-m", "execution.launch", "--replicas", str(request.param), "--"]
    command += ["-m", "tests.equivalence.replica_cases", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr[-6000:]
    return folder, request.param


def test_several_processes_train_as_one(by_one, by_several):
    folder, count = by_several
    for case in cases_of(count):
        weights, metrics = by_one(case._replace(sharded=False, pipelined=False))
        with np.load(folder / f"{case.name}-0.npz") as chief:
            for name, value in metrics.items():
                np.testing.assert_allclose(chief[f"metric_{name}"], value, rtol=1e-5, err_msg=f"{case.name} {name}")
            for name, value in weights.items():
                np.testing.assert_allclose(chief[name], value, rtol=1e-5, atol=1e-5, err_msg=f"{case.name} {name}")


def test_all_processes_hold_the_same_bits(by_several):
    folder, count = by_several
    for case in cases_of(count):
        with np.load(folder / f"{case.name}-0.npz") as chief:
            for index in range(1, count):
                with np.load(folder / f"{case.name}-{index}.npz") as other:
                    for name in chief.files:
                        np.testing.assert_array_equal(chief[name], other[name], err_msg=f"{case.name} {name}")
