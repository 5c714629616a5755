"""Hugging Face's TensorFlow BERT, its optimizer and its data, as its documentation has them."""

from __future__ import annotations

import time

from transformers import AdamWeightDecay, TFBertForPreTraining, TFBertForQuestionAnswering, TFPreTrainedModel

from benchmarks.ours import Clock
from benchmarks.samples import Arrays
from benchmarks.settings import LEARNING_RATE, MICRO_BATCH, SEED, WEIGHT_DECAY, Trainer
from keras_extensions.backend import keras, tf
from model.architecture import PRETRAINING, SQUAD, Architecture
from model.huggingface import hugging_face_config

MODELS = {PRETRAINING: TFBertForPreTraining, SQUAD: TFBertForQuestionAnswering}


def with_fit(task: str, architecture: Architecture, data: Arrays) -> Trainer:
    """As shipped: ``compile`` without a loss (the model brings its own) and ``fit``."""
    model = _model(task, architecture)
    model.compile(optimizer=_optimizer())
    batches = _dataset(data)
    clock = Clock()

    def train(steps: int) -> float:
        model.fit(batches, steps_per_epoch=steps, verbose=0, callbacks=[clock])
        return clock.seconds

    return train


def with_function(task: str, architecture: Architecture, data: Arrays) -> Trainer:
    """A loop of the user's own, one ``tf.function`` a step."""
    model = _model(task, architecture)
    model.build()
    optimizer = _optimizer()
    batches = iter(_dataset(data))

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
            loss = step(next(batches))
        loss.numpy()
        return time.perf_counter() - begin

    return train


def _model(task: str, architecture: Architecture) -> TFPreTrainedModel:
    keras.utils.set_random_seed(SEED)
    return MODELS[task](hugging_face_config(architecture))


def _optimizer() -> keras.optimizers.Optimizer:
    """Return AdamW with the usual exclusions from decay."""
    excluded = ["LayerNorm", "layer_norm", "bias"]
    return AdamWeightDecay(LEARNING_RATE, weight_decay_rate=WEIGHT_DECAY, exclude_from_weight_decay=excluded)


def _dataset(data: Arrays) -> tf.data.Dataset:
    """Return micro batches without end."""
    rows = tf.data.Dataset.from_tensor_slices(data)
    return rows.batch(MICRO_BATCH, drop_remainder=True).repeat().prefetch(tf.data.AUTOTUNE)
