"""A short crash test with one kill and one signal (`make long-test`); `make crash-test` runs the long one.

What a killed writer of checkpoints leaves is in tests/unit/checkpoints/test_writer.py, a run that is killed in
tests/integration/test_resume.py, and processes that are killed in test_replicas.py and test_from_text.py.
"""

from __future__ import annotations

import random
import signal

import pytest

from tests.crash.training import PATIENCE, STEPPING, WRITING, kill_once, prepare, start, stop
from tests.support.runs import assert_same_run

pytestmark = pytest.mark.long

UPDATES = 60
SEED = 20


@pytest.mark.parametrize("moment", [WRITING, STEPPING])
def test_killed_stopped_and_resumed(tmp_path, moment):
    experiment = prepare(tmp_path, UPDATES)
    run = tmp_path / "runs" / "crash"
    chance = random.Random(SEED)
    assert kill_once(experiment, run, moment, chance)
    command = stop(experiment, run, signal.SIGTERM)
    assert start(experiment.config, run, command).wait(PATIENCE) == 0
    assert_same_run(run, experiment.whole)
