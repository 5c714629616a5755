"""Learning-rate schedules: functions of the number of weight updates done."""

from __future__ import annotations

import math
from typing import Callable, Union

from keras_extensions.backend import keras, tf


class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up, then a decay, by default a linear one to 0.

    With T updates, of which W = round(warmup_frac · T) are warm-up, the update after n others has the rate

        max · (n + 1) / W       while n < W
        max · decay(r)          from there on, where r = (T - n) / (T - W) falls from 1 to 0, and stays 0 after T

    No update of the warm-up has a rate of 0, and update W has the maximum.
    """

    def __init__(
        self,
        max_learning_rate: float,
        total_steps: int,
        warmup_frac: float,
        decay: Callable[[tf.Tensor], tf.Tensor] = lambda remaining: remaining,
    ) -> None:
        super().__init__()
        assert max_learning_rate >= 0 and total_steps >= 1 and 0 <= warmup_frac <= 1
        self.max_learning_rate = max_learning_rate
        self.total_steps = total_steps
        self.warmup_steps = round(warmup_frac * total_steps)
        self.decay = decay

    def __call__(self, step: Union[int, tf.Tensor]) -> tf.Tensor:
        """Return the rate after ``step`` updates, a float32 scalar."""
        done = tf.cast(step, tf.float32)
        up = (done + 1.0) / max(self.warmup_steps, 1)
        remaining = tf.maximum((self.total_steps - done) / max(self.total_steps - self.warmup_steps, 1), 0.0)
        return self.max_learning_rate * tf.where(done < self.warmup_steps, up, self.decay(remaining))


class UpDown(WarmUp):
    """The schedule of Graphcore's published BERT: linear, an update later, and never 0.

    With T updates, of which W = ⌊warmup_frac · T⌋ are warm-up, the update after n others has the rate

        max · n / W                   while n ≤ W, unless W = 0
        max · (T - n - 1) / (T - W)   from there on

    and at least 1e-7, which the first update and the last have. The arguments are those of :class:`WarmUp`.

    Example:
        >>> [round(float(UpDown(0.006, total_steps=6, warmup_frac=0.28)(n)), 7) for n in range(6)]
        [1e-07, 0.006, 0.0036, 0.0024, 0.0012, 1e-07]
    """

    LEAST = 1e-7

    def __init__(self, max_learning_rate: float, total_steps: int, warmup_frac: float) -> None:
        super().__init__(max_learning_rate, total_steps, warmup_frac)
        self.warmup_steps = int(warmup_frac * total_steps)

    def __call__(self, step: Union[int, tf.Tensor]) -> tf.Tensor:
        done = tf.cast(step, tf.float32)
        up = (done / max(self.warmup_steps, 1)) * self.max_learning_rate
        down = self.max_learning_rate * ((self.total_steps - done - 1) / max(self.total_steps - self.warmup_steps, 1))
        is_warm_up = (done <= self.warmup_steps) & (self.warmup_steps > 0)
        return tf.maximum(tf.where(is_warm_up, up, down), self.LEAST)


def make_schedule(
    name: str, max_learning_rate: float, total_steps: int, warmup_frac: float, power: float = 1.0
) -> WarmUp:
    """Return the schedule that a config names; ``power`` is used by ``polynomial``."""
    if name == "up_down":
        return UpDown(max_learning_rate, total_steps, warmup_frac)
    decays = {
        "linear": lambda remaining: remaining,
        "constant": tf.ones_like,
        "cosine": lambda remaining: (1.0 - tf.cos(math.pi * remaining)) / 2.0,
        "polynomial": lambda remaining: remaining**power,  # NVIDIA pre-trains BERT with LAMB and the power 0.5
    }
    return WarmUp(max_learning_rate, total_steps, warmup_frac, decays[name])
