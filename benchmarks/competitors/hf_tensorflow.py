"""Hugging Face's TensorFlow BERT, its optimizer and its data, as its documentation has them."""

from __future__ import annotations

import os

os.environ.setdefault("USE_TORCH", "0")  # transformers would load PyTorch too, which would count as memory

from transformers import AdamWeightDecay, TFBertForPreTraining  # noqa: E402

from benchmarks.competitors.hugging_face import bert_config  # noqa: E402
from benchmarks.jobs import LEARNING_RATE, MICRO_BATCH, WEIGHT_DECAY, Job  # noqa: E402
from benchmarks.samples import hugging_face_samples, samples  # noqa: E402
from keras_extensions.backend import keras, tf  # noqa: E402


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
