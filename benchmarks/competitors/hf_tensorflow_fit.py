"""Hugging Face TensorFlow as shipped: ``compile`` without a loss (the model brings its own) and ``fit``."""

from __future__ import annotations

from benchmarks.competitors import hf_tensorflow
from benchmarks.competitors.fit_clock import FitClock
from benchmarks.jobs import Job, Trainer


def prepare(job: Job) -> Trainer:
    """See :data:`benchmarks.jobs.Trainer`."""
    model = hf_tensorflow.model_of(job)
    model.compile(optimizer=hf_tensorflow.optimizer())
    data = hf_tensorflow.dataset()
    clock = FitClock()

    def train(steps: int) -> float:
        model.fit(data, steps_per_epoch=steps, verbose=0, callbacks=[clock])
        return clock.seconds

    return train
