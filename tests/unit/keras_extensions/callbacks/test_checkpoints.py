"""Checkpoints by step, by time, at the end, in a resumed run, and with several processes."""

from __future__ import annotations

import pytest

from keras_extensions.callbacks.checkpoints import Checkpoints
from utilities.errors import UserError


def drive(callback: Checkpoints, executions: list[tuple[int, float]], clock: list[float] | None = None) -> None:
    """Call the hooks like Keras; executions are (updates, seconds)."""
    callback.on_train_begin()
    callback.on_epoch_begin(0)
    done = 0
    for updates, seconds in executions:
        if clock is not None:
            clock[0] += seconds
        done += updates
        callback.on_train_batch_end(done - 1, {})
    callback.on_train_end()


@pytest.mark.parametrize(
    ("every", "options", "executions", "steps"),
    [
        (4, {}, [3, 3, 3, 3, 2], [6, 9, 12, 14]),  # 6 is for 4, 9 for 8, and 14 is the end
        (4, {"first_step": 8}, [4, 4], [12, 16]),  # the end is written once
        (None, {}, [4], [4]),
        (4, {"first_step": 8, "saved_step": 8}, [], []),
        (4, {"first_step": 8, "saved_step": 8}, [2, 2], [12]),
    ],
)
def test_checkpoints_at_multiples_and_at_the_end(every, options, executions, steps):
    saved = []
    drive(Checkpoints(saved.append, every, **options), [(updates, 1) for updates in executions])
    assert saved == steps


def test_last_checkpoint_may_be_saved_in_another_way():
    saved, last = [], []
    drive(Checkpoints(saved.append, 4, save_last=last.append, last_step=12), [(4, 1)] * 3)
    assert (saved, last) == ([4, 8], [12])


def test_checkpoints_by_time():
    clock, saved = [1000.0], []
    callback = Checkpoints(saved.append, every_n_updates=10, every_seconds=60, clock=lambda: clock[0])
    clock[0] += 500  # compiling before training begins does not count
    drive(callback, [(2, 50), (2, 9), (2, 1), (2, 30), (2, 1), (2, 59), (2, 1)], clock)
    assert saved == [6, 10, 14]  # 6: 60 s; 10: by step, which restarts the time; 14: 60 s


def test_failed_writer_ends_training_at_the_next_execution():
    checks = []

    def check() -> None:
        checks.append(None)
        if len(checks) == 2:
            raise UserError("no space")

    saved = []
    with pytest.raises(UserError, match="no space"):
        drive(Checkpoints(saved.append, 4, check=check), [(2, 1), (2, 1), (2, 1), (2, 1)], [0.0])
    assert saved == [4] and len(checks) == 2


@pytest.mark.parametrize(("due", "agreed", "saves"), [(False, True, [1]), (True, False, []), (True, True, [1])])
def test_processes_agree_on_checkpoints_by_time(due, agreed, saves):
    saved, seen, now = [], [], [0.0]
    callback = Checkpoints(
        saved.append, every_seconds=10, clock=lambda: now[0], agree=lambda own: seen.append(own) or agreed
    )
    callback.on_train_begin()
    now[0] = 11.0 if due else 1.0
    callback.on_train_batch_end(0)
    assert saved == saves and seen == [due]
