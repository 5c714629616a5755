"""A few kills and a signal; `make crash-test` has more of them."""

from __future__ import annotations

import random
import signal

from tests.crash import preparation
from tests.crash.training import STEPPING, WRITING, kill_once, prepare, start, stop
from tests.integration.small_runs import assert_same_run

UPDATES = 60
SEED = 20


def test_killed_twice_stopped_once_and_resumed(tmp_path):
    place = prepare(tmp_path, UPDATES)
    run = tmp_path / "runs" / "crash"
    chance = random.Random(SEED)
    for moment in (WRITING, STEPPING):
        assert kill_once(place, run, moment, chance)
    command = stop(place, run, signal.SIGTERM)
    assert start(place.config, run, command).wait(180) == 0
    assert_same_run(run, place.whole)


def test_data_preparation_killed_once(tmp_path):
    preparation.crash(tmp_path / "text", kills=1, documents=300, seed=SEED)
