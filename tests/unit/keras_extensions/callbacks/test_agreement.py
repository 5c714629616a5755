"""Callbacks of several processes act at the same step, whatever each of them saw."""

from __future__ import annotations

import types

import pytest

from keras_extensions.callbacks.checkpoints import Checkpoints
from keras_extensions.callbacks.signals import StopRequest, StopWhenRequested


def stopping(own: str | None, largest: object) -> tuple[StopRequest, bool]:
    request, model = StopRequest(), types.SimpleNamespace(stop_training=False)
    request.signal = own
    callback = StopWhenRequested(request, largest)
    callback.set_model(model)
    callback.on_train_batch_end(0)
    return request, model.stop_training


@pytest.mark.parametrize(
    ("own", "agreed", "ends", "told"),
    [
        (None, 0, False, None),
        (None, 15, True, "SIGTERM"),
        ("SIGINT", 15, True, "SIGINT"),
        ("SIGTERM", 15, True, "SIGTERM"),
    ],
)
def test_a_process_ends_with_the_others(own, agreed, ends, told):
    seen = []
    request, ended = stopping(own, lambda number: seen.append(number) or agreed)
    assert ended == ends and request.signal == told
    assert seen == [{None: 0, "SIGINT": 2, "SIGTERM": 15}[own]]


@pytest.mark.parametrize(("up", "agreed", "saves"), [(False, True, [1]), (True, False, []), (True, True, [1])])
def test_time_is_up_when_all_say_so(up, agreed, saves):
    saved, seen, now = [], [], [0.0]
    callback = Checkpoints(
        saved.append, every_seconds=10, clock=lambda: now[0], agree=lambda own: seen.append(own) or agreed
    )
    callback.on_train_begin()
    now[0] = 11.0 if up else 1.0
    callback.on_train_batch_end(0)
    assert saved == saves and seen == [up]
