"""Hugging Face's TensorFlow BERT, its optimizer and its data, as its documentation has them."""

from __future__ import annotations

from transformers import AdamWeightDecay, TFBertForPreTraining

from benchmarks.competitors.hugging_face import bert_config
from benchmarks.jobs import LEARNING_RATE, MICRO_BATCH, WEIGHT_DECAY, Job
from benchmarks.samples import hugging_face_samples, samples
from keras_extensions.backend import keras, tf


def model_of(job: Job) -> TFBertForPreTraining:
    """Random weights."""
    keras.utils.set_random_seed(1984)
    return TFBertForPreTraining(bert_config(job.architecture))


def optimizer() -> keras.optimizers.Optimizer:
    """AdamW with the usual exclusions from decay."""
    return AdamWeightDecay(
        LEARNING_RATE,
        weight_decay_rate=WEIGHT_DECAY,
        exclude_from_weight_decay=["LayerNorm", "layer_norm", "bias"],
    )


def dataset() -> tf.data.Dataset:
    """Micro batches without end."""
    data = tf.data.Dataset.from_tensor_slices(hugging_face_samples(samples()))
    return data.batch(MICRO_BATCH, drop_remainder=True).repeat().prefetch(tf.data.AUTOTUNE)
