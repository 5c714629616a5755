"""Pre-training of Hugging Face's TensorFlow BERT with its optimizer, in a loop written for speed.

B micro batch · S sequence · P masked positions · H hidden · V vocabulary
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from transformers import AdamWeightDecay, TFBertForPreTraining

from benchmarks.samples import Arrays
from benchmarks.settings import LEARNING_RATE, SEED, WEIGHT_DECAY, Trainer
from keras_extensions.backend import keras, tf
from model.architecture import Architecture
from model.huggingface import hugging_face_config


def trainer(architecture: Architecture, batches: Callable[[], Iterator[Arrays]]) -> Trainer:
    """Pre-train in a compiled ``tf.function``, with the masked-LM head on the masked positions only.

    Args:
        architecture: sizes of the model, whose weights are random.
        batches: by this project's names, every masked position real.
    """
    keras.utils.set_random_seed(SEED)
    model = TFBertForPreTraining(hugging_face_config(architecture))
    model.build()
    undecayed = ["LayerNorm", "layer_norm", "bias"]
    optimizer = AdamWeightDecay(LEARNING_RATE, weight_decay_rate=WEIGHT_DECAY, exclude_from_weight_decay=undecayed)
    signature = {name: tf.TensorSpec(values.shape, values.dtype) for name, values in next(batches()).items()}
    data = iter(tf.data.Dataset.from_generator(batches, output_signature=signature).prefetch(tf.data.AUTOTUNE))

    def loss_of(batch: dict[str, tf.Tensor]) -> tf.Tensor:
        inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["input_mask"]}
        hidden, pooled = model.bert(**inputs, token_type_ids=batch["segment_ids"], training=True)[:2]  # (B, S, H)
        masked = tf.gather(hidden, batch["masked_lm_positions"], batch_dims=1)  # (B, P, H)
        words, next_sentence = model.mlm(sequence_output=masked), model.nsp(pooled_output=pooled)  # (B, P, V), (B, 2)
        cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits
        words_loss = tf.reduce_mean(cross_entropy(batch["masked_lm_ids"], words))
        return words_loss + tf.reduce_mean(cross_entropy(batch["next_sentence_labels"][:, 0], next_sentence))

    @tf.function(jit_compile=True)
    def step(batch: dict[str, tf.Tensor]) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_of(batch)
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
