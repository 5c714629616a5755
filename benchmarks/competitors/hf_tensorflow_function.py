"""Hugging Face TensorFlow in a loop of the user's own, one ``tf.function`` a step."""

from __future__ import annotations

import time

from benchmarks.competitors import hf_tensorflow
from benchmarks.jobs import Job, Trainer
from keras_extensions.backend import tf


def prepare(job: Job) -> Trainer:
    """See :data:`benchmarks.jobs.Trainer`."""
    model = hf_tensorflow.model_of(job)
    model.build()
    optimizer = hf_tensorflow.optimizer()
    data = iter(hf_tensorflow.dataset())

    @tf.function
    def step(batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(batch, training=True).loss)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    def train(steps: int) -> float:
        begin = time.perf_counter()
        for _ in range(steps):
            loss = step(next(data))
        loss.numpy()
        return time.perf_counter() - begin

    return train
