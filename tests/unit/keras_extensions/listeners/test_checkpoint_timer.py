"""CheckpointTimer by step, by time, at the end, in a resumed run, and with several processes."""

from __future__ import annotations

import pytest

from keras_extensions.listeners.checkpoint_timer import CheckpointTimer
from utilities.errors import UserError


def drive(
    timer: CheckpointTimer, periods: list[tuple[int, float]], clock: list[float] | None = None, first_step: int = 0
) -> None:
    timer.begin()
    step = first_step
    for updates, seconds in periods:
        if clock is not None:
            clock[0] += seconds
        step += updates
        timer.save_if_due(step)
    timer.end()


@pytest.mark.parametrize(
    ("every", "options", "periods", "steps"),
    [
        (4, {}, [3, 3, 3, 3, 2], [6, 9, 12, 14]),  # 6 is for 4, 9 for 8, and 14 is the end
        (4, {"first_step": 8}, [4, 4], [12, 16]),  # the end is written once
        (None, {}, [4], [4]),
        (4, {"first_step": 8, "saved_step": 8}, [], []),
        (4, {"first_step": 8, "saved_step": 8}, [2, 2], [12]),
    ],
)
def test_checkpoints_at_multiples_and_at_the_end(every, options, periods, steps):
    saved = []
    first_step = options.get("first_step", 0)
    drive(CheckpointTimer(saved.append, every, **options), [(updates, 1) for updates in periods], first_step=first_step)
    assert saved == steps


def test_last_checkpoint_may_be_saved_in_another_way():
    saved, last = [], []
    drive(CheckpointTimer(saved.append, 4, save_last=last.append, last_step=12), [(4, 1)] * 3)
    assert (saved, last) == ([4, 8], [12])


def test_checkpoints_by_time():
    clock, saved = [1000.0], []
    timer = CheckpointTimer(saved.append, every_n_updates=10, every_seconds=60, clock=lambda: clock[0])
    clock[0] += 500  # compiling before training begins does not count
    drive(timer, [(2, 50), (2, 9), (2, 1), (2, 30), (2, 1), (2, 59), (2, 1)], clock)
    assert saved == [6, 10, 14]  # 6: 60 s; 10: by step, which restarts the time; 14: 60 s


def test_failed_writer_ends_training_at_the_next_period():
    checks = []

    def check() -> None:
        checks.append(None)
        if len(checks) == 2:
            raise UserError("no space")

    saved = []
    with pytest.raises(UserError, match="no space"):
        drive(CheckpointTimer(saved.append, 4, check=check), [(2, 1), (2, 1), (2, 1), (2, 1)], [0.0])
    assert saved == [4] and len(checks) == 2


@pytest.mark.parametrize(("due", "agreed", "saves"), [(False, True, [1]), (True, False, []), (True, True, [1])])
def test_processes_agree_on_checkpoints_by_time(due, agreed, saves):
    saved, seen, now = [], [], [0.0]
    timer = CheckpointTimer(
        saved.append, every_seconds=10, clock=lambda: now[0], agree=lambda own: seen.append(own) or agreed
    )
    timer.begin()
    now[0] = 11.0 if due else 1.0
    timer.save_if_due(1)
    assert saved == saves and seen == [due]
