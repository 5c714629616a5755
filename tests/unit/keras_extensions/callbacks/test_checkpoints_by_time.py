"""Checkpoints by time, of a resumed run, and errors of a writer that works beside training."""

from __future__ import annotations

import pytest

from keras_extensions.callbacks.checkpoints import Checkpoints
from utilities.errors import UserError


def drive(callback: Checkpoints, executions: list[tuple[int, float]], clock: list[float]) -> None:
    """Calls the hooks as Keras does; executions are (updates, seconds)."""
    callback.on_train_begin()
    callback.on_epoch_begin(0)
    done = 0
    for updates, seconds in executions:
        clock[0] += seconds
        done += updates
        callback.on_train_batch_end(done - 1, {})
    callback.on_train_end()


def test_after_so_many_seconds_since_the_last_one():
    clock, saved = [1000.0], []
    callback = Checkpoints(saved.append, every_n_updates=10, every_seconds=60, clock=lambda: clock[0])
    clock[0] += 500  # compiling before training begins does not count
    drive(callback, [(2, 50), (2, 9), (2, 1), (2, 30), (2, 1), (2, 59), (2, 1)], clock)
    assert saved == [6, 10, 14]  # 6: 60 s; 10: by step, from where the time counts anew; 14: 60 s


def test_what_is_on_disk_already_is_not_saved_again():
    saved = []
    drive(Checkpoints(saved.append, 4, first_step=8, saved_step=8), [], [0.0])
    assert saved == []
    drive(Checkpoints(saved.append, 4, first_step=8, saved_step=8), [(2, 1), (2, 1)], [0.0])
    assert saved == [12]


def test_a_writer_that_failed_ends_training_at_the_next_execution():
    checks = []

    def check() -> None:
        checks.append(None)
        if len(checks) == 2:
            raise UserError("no space")

    saved = []
    with pytest.raises(UserError, match="no space"):
        drive(Checkpoints(saved.append, 4, check=check), [(2, 1), (2, 1), (2, 1), (2, 1)], [0.0])
    assert saved == [4] and len(checks) == 2
