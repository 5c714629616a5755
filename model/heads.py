"""The heads of pre-training and fine-tuning (Devlin et al. 2019, sections 3.1 and 4).

B micro batch · S sequence · P masked positions · H hidden · V vocabulary · C classes
"""

from __future__ import annotations

from typing import Any, Callable, Optional

from execution.interface import Platform
from keras_extensions.backend import keras, tf
from model.architecture import Architecture
from model.layers import activated_dense, dense


class Pooler(keras.layers.Layer):
    """tanh(dense(hidden state of [CLS]))."""

    def __init__(self, architecture: Architecture):
        super().__init__(name="pooler")
        self.dense = dense(architecture.hidden_size)

    def call(self, hidden: tf.Tensor) -> tf.Tensor:  # (B, S, H) → (B, H)
        return tf.tanh(self.dense(hidden[:, 0]))


class HeadTransform(keras.layers.Layer):
    """norm(activation(dense(x))) before the masked-LM product; present with ``use_cls_layer``."""

    def __init__(self, architecture: Architecture, platform: Platform):
        super().__init__(name="transform")
        self.dense = activated_dense(architecture, platform, architecture.hidden_size)
        self.norm = platform.layer_normalization(architecture.layer_norm_eps, name="norm")

    def call(self, x: tf.Tensor) -> tf.Tensor:  # (B, P, H)
        return self.norm(self.dense(x))


class MaskedLMHead(keras.layers.Layer):
    """Scores of every word piece at the masked positions, computed with the tied word embedding.

    The tied word embedding is (V, H); without a ``transform``, hidden states are multiplied by it as they are.
    """

    def __init__(
        self,
        architecture: Architecture,
        platform: Platform,
        word_table: Callable[[], tf.Tensor],
        transform: Optional[keras.layers.Layer],
    ):
        super().__init__(name="masked_lm")
        self._architecture = architecture
        self._platform = platform
        self._word_table = word_table
        self.transform = transform

    def build(self, input_shape: Any) -> None:
        if self._architecture.use_prediction_bias:
            self.bias = self.add_weight("bias", (self._architecture.vocab_size,), initializer="zeros")
        super().build(input_shape)

    def call(self, x: tf.Tensor) -> tf.Tensor:  # (B, P, H) → (B, P, V)
        if self.transform is not None:
            x = self.transform(x)
        factor = self._architecture.embedding_serialization_factor
        logits = self._platform.serialized_matmul(x, self._word_table(), factor)
        return logits + self.bias if self._architecture.use_prediction_bias else logits


class NextSentenceHead(keras.layers.Layer):
    """Scores of «B follows A» and «B is random» from the pooled [CLS]."""

    def __init__(self) -> None:
        super().__init__(name="next_sentence")
        self.dense = dense(2)

    def call(self, pooled: tf.Tensor) -> tf.Tensor:  # (B, H) → (B, 2)
        return self.dense(pooled)


class SpanHead(keras.layers.Layer):
    """Scores of every token as the start and as the end of the answer."""

    def __init__(self) -> None:
        super().__init__(name="span")
        self.dense = dense(2)

    def call(self, hidden: tf.Tensor) -> tf.Tensor:  # (B, S, H) → (B, S, 2)
        return self.dense(hidden)


class Classifier(keras.layers.Layer):
    """Scores of the classes from the pooled [CLS] or from each token; one class is a regression."""

    def __init__(self, dropout: keras.layers.Layer, product: keras.layers.Layer):
        super().__init__(name="classifier")
        self.dropout = dropout
        self.dense = product

    def call(self, pooled: tf.Tensor, training: Optional[bool] = None) -> tf.Tensor:  # (…, H) → (…, C)
        return self.dense(self.dropout(pooled, training=training))


def gather_positions(hidden: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
    """Return the hidden states (B, S, H) at ``positions`` (B, P), as (B, P, H)."""
    return tf.gather(hidden, positions, batch_dims=1)
