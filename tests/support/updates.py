"""Trainings of a fixed number of updates, for tests of platforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from execution.interface import Platform, Progress
from keras_extensions.backend import keras


class Calls(Progress):
    """Makes a number of updates in calls of ``per_call``, and keeps the means and the updates done after each call."""

    def __init__(self, updates: int, per_call: int | None = None, after: Callable[[int], None] | None = None) -> None:
        self._updates, self._per_call, self._after = updates, per_call or updates, after
        self.means: list[dict[str, float]] = []
        self.steps: list[int] = []

    @property
    def _done(self) -> int:
        return self.steps[-1] if self.steps else 0

    def next_call(self) -> int:
        return min(self._per_call, self._updates - self._done)

    def after_call(self, updates: int, means: Callable[[], dict[str, float]]) -> bool:
        self.steps.append(self._done + updates)
        self.means.append(means())
        if self._after is not None:
            self._after(self._done)
        return self._done < self._updates


def make_updates(
    platform: Platform,
    model: keras.Model,
    data: Any,
    updates: int,
    per_call: int | None = None,
    after: Callable[[int], None] | None = None,
) -> list[dict[str, float]]:
    """Train a compiled model, and return the means of each call; there is one call unless ``per_call`` divides it."""
    progress = Calls(updates, per_call, after)
    platform.train(model, data, updates, progress)
    return progress.means
