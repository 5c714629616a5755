"""Learning-rate schedules: functions of the number of weight updates done."""

from __future__ import annotations

from typing import Any, Dict, Union

from keras_extensions.backend import keras, tf
from utilities.errors import UserError


@keras.utils.register_keras_serializable(package="bert")
class UpDown(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up, then linear decay to 0: the published ``up_down`` schedule.

    With T updates, of which W = round(warmup_frac · T) are warm-up, the update after n others has the rate

        max · (n + 1) / W          while n < W
        max · (T - n) / (T - W)    from there on, and 0 from n = T

    so that no update has a rate of 0, and update W has the maximum.

    Args:
        max_learning_rate: the peak.
        total_steps: T, updates of the whole run, at least 1.
        warmup_frac: W / T, from 0 to 1.

    Raises:
        UserError: an argument is out of range.

    Example:
        >>> [float(UpDown(1.0, total_steps=10, warmup_frac=0.4)(n)) for n in (0, 3, 4, 7, 10)]
        [0.25, 1.0, 1.0, 0.5, 0.0]
    """

    def __init__(self, max_learning_rate: float, total_steps: int, warmup_frac: float) -> None:
        super().__init__()
        if not 0 <= max_learning_rate < float("inf"):
            raise UserError(f"learning_rate.max_learning_rate is {max_learning_rate}; give 0 or more")
        if total_steps < 1:
            raise UserError(f"the run has {total_steps} updates; raise total_num_train_samples or num_epochs")
        if not 0 <= warmup_frac <= 1:
            raise UserError(f"learning_rate.warmup_frac is {warmup_frac}; it is a share, from 0 to 1")
        self.max_learning_rate = max_learning_rate
        self.total_steps = total_steps
        self.warmup_frac = warmup_frac
        self.warmup_steps = round(warmup_frac * total_steps)

    def __call__(self, step: Union[int, tf.Tensor]) -> tf.Tensor:
        """Return the rate after ``step`` updates, a float32 scalar."""
        done = tf.cast(step, tf.float32)
        up = (done + 1.0) / max(self.warmup_steps, 1)
        down = (self.total_steps - done) / max(self.total_steps - self.warmup_steps, 1)
        return self.max_learning_rate * tf.where(done < self.warmup_steps, up, tf.maximum(down, 0.0))

    def get_config(self) -> Dict[str, Any]:
        return {
            "max_learning_rate": self.max_learning_rate,
            "total_steps": self.total_steps,
            "warmup_frac": self.warmup_frac,
        }
