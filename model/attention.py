"""Multi-head self-attention (Vaswani et al. 2017, section 3.2).

B micro batch · S sequence · H hidden · A heads · D = H / A head size
"""

from __future__ import annotations

from typing import Optional

from execution.interface import Platform
from keras_extensions.backend import keras, tf
from model.architecture import QKV, Architecture
from model.weights import encoder_dense


class SelfAttention(keras.layers.Layer):
    """softmax(Q·Kᵀ / √D + bias)·V for each head, heads side by side in the output.

    With ``use_qkv_split`` three products make Q, K and V (weights ``query``, ``key``, ``value``, with biases if
    ``use_qkv_bias``); otherwise one product makes all three (weight ``qkv`` (H, 3H), no bias).
    """

    def __init__(self, architecture: Architecture, platform: Platform, name: str = "attention"):
        super().__init__(name=name)
        a = architecture
        self._heads = a.num_attention_heads
        self._head_size = a.hidden_size // a.num_attention_heads
        self._platform = platform
        if a.use_qkv_split:
            self.query, self.key, self.value = (
                encoder_dense(a, platform, QKV, a.hidden_size, a.use_qkv_bias, part)
                for part in ("query", "key", "value")
            )
        else:
            self.qkv = encoder_dense(a, platform, QKV, 3 * a.hidden_size, use_bias=False, name="qkv")
        self._split = a.use_qkv_split
        self.dropout = platform.dropout(a.attention_probs_dropout_prob, name="dropout")

    def _queries_keys_values(self, hidden: tf.Tensor):
        """Return queries, keys and values, each (B, A, S, D)."""
        if self._split:
            parts = [dense(hidden) for dense in (self.query, self.key, self.value)]  # 3 × (B, S, H)
        else:
            parts = tf.split(self.qkv(hidden), 3, axis=-1)  # 3 × (B, S, H)
        batch, sequence = tf.shape(hidden)[0], hidden.shape[1]
        shape = (batch, sequence, self._heads, self._head_size)
        return [tf.transpose(tf.reshape(part, shape), (0, 2, 1, 3)) for part in parts]

    def call(
        self,
        hidden: tf.Tensor,  # (B, S, H)
        bias: tf.Tensor,  # (B, 1, 1 or S, S)
        training: Optional[bool] = None,
    ) -> tf.Tensor:
        query, key, value = self._queries_keys_values(hidden)
        scale = tf.cast(self._head_size**-0.5, query.dtype)
        scores = tf.matmul(query * scale, key, transpose_b=True) + bias  # (B, A, S, S)
        weights = self.dropout(self._platform.softmax(scores), training=training)
        context = tf.transpose(tf.matmul(weights, value), (0, 2, 1, 3))  # (B, S, A, D)
        return tf.reshape(context, tf.shape(hidden))  # (B, S, H)
