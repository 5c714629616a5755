"""The layers of BERT's encoder (Vaswani et al. 2017, section 3; Devlin et al. 2019, figure 2).

Weights are created as zeros, because the conversion sets all of them. The random initial weights are Hugging Face's
(truncated normal, Devlin et al. 2019), drawn once in the source model. Only the parts of an encoder layer between the
dropouts are outlined: code that draws random numbers is compiled again for each call.

B micro batch · S tokens of a row · H hidden · A heads · D = H / A head size · I intermediate · V vocabulary ·
M maximum positions · T segment types
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, List, Optional

from execution.interface import Platform
from keras_extensions.backend import keras, tf
from model.architecture import INTERMEDIATE, OUTPUT, PROJECTION, QKV, Architecture
from sparsity.layer import sparse_dense, with_dense_matrices  # room: sparsity

INITIALIZER = "zeros"
# Added to the attention scores of masked keys: its exp() is 0 in float32, and float16 can represent it.
MASKED_SCORE = -10000.0

# What may stand in the place of a dense layer of the encoder: functions with the arguments of :func:`other_dense` and
# the number of inputs, which return a layer that takes a matrix like a dense one (``kernel.assign``), or None.
OTHER_LAYERS: List[Callable[..., Optional[keras.layers.Layer]]] = [
    sparse_dense,  # room: sparsity
]
# How the variables of such layers, saved by name, become those of dense layers.
AS_DENSE: List[Callable[[Dict[str, Any], Dict[str, Any]], Dict[str, Any]]] = [
    with_dense_matrices,  # room: sparsity
]


def dense(units: int, use_bias: bool = True, name: str = "dense") -> keras.layers.Dense:
    """Return a dense layer whose weights the conversion will set."""
    return keras.layers.Dense(units, use_bias=use_bias, kernel_initializer=INITIALIZER, name=name)


def activation(architecture: Architecture, platform: Platform) -> Callable[[tf.Tensor], tf.Tensor]:
    if architecture.has_gelu:
        return functools.partial(platform.gelu, approximate=architecture.approximate_gelu)
    function: Callable[[tf.Tensor], tf.Tensor] = getattr(tf.nn, architecture.hidden_act)
    return function


def activated_dense(architecture: Architecture, platform: Platform, units: int) -> keras.layers.Layer:
    if architecture.has_gelu:
        return platform.linear_gelu(units, architecture.approximate_gelu, INITIALIZER, "dense")
    function = activation(architecture, platform)
    return keras.layers.Dense(units, activation=function, kernel_initializer=INITIALIZER, name="dense")


def other_dense(
    architecture: Architecture,
    platform: Platform,
    part: str,
    units: int,
    use_bias: bool = True,
    name: str = "dense",
    activation: Optional[Callable[[tf.Tensor], tf.Tensor]] = None,
) -> Optional[keras.layers.Layer]:
    """Return what stands in the place of a dense layer of the encoder; None if the layer is dense."""
    inputs = architecture.intermediate_size if part == OUTPUT else architecture.hidden_size
    layers = (make(architecture, platform, part, inputs, units, use_bias, name, activation) for make in OTHER_LAYERS)
    return next((layer for layer in layers if layer is not None), None)


class Embeddings(keras.layers.Layer):
    """Sum of three embeddings, then LayerNorm and dropout.

    Weights: ``word`` (V, H), shared with the masked-LM head; ``position`` (M, H); ``segment`` (T, H).
    """

    def __init__(self, architecture: Architecture, platform: Platform):
        super().__init__(name="embeddings")
        self._architecture = architecture
        self._platform = platform
        self.norm = platform.layer_normalization(architecture.layer_norm_eps, name="norm")
        self.dropout = platform.dropout(architecture.hidden_dropout_prob, name="dropout")

    def build(self, input_shape: Any) -> None:
        a = self._architecture
        self.word = self._table("word", a.vocab_size)
        self.position = self._table("position", a.max_position_embeddings)
        self.segment = self._table("segment", a.type_vocab_size)
        super().build(input_shape)

    def _table(self, name: str, rows: int) -> tf.Variable:
        shape = (rows, self._architecture.hidden_size)
        # In mixed precision, rows are cast and not the table.
        return self.add_weight(name, shape, initializer=INITIALIZER, experimental_autocast=False)

    def word_table(self) -> tf.Tensor:
        """Return the word embedding as a tensor (V, H), for the tied masked-LM head."""
        return self._platform.factor(self.word)

    def call(
        self,
        input_ids: tf.Tensor,  # (B, S) int32
        segment_ids: tf.Tensor,  # (B, S) int32
        position_ids: Optional[tf.Tensor] = None,  # (B, S) int32; None counts from 0
        training: Optional[bool] = None,
    ) -> tf.Tensor:
        lookup = self._platform.embedding_lookup
        words = lookup(
            tf.convert_to_tensor(self.word), input_ids, self._architecture.embedding_serialization_factor
        )  # (B, S, H)
        segments = lookup(tf.convert_to_tensor(self.segment), segment_ids)  # (B, S, H)
        if position_ids is None:
            positions = tf.cast(self.position[: tf.shape(input_ids)[1]], words.dtype)  # (S, H)
        else:
            positions = lookup(tf.convert_to_tensor(self.position), position_ids)  # (B, S, H)
        return self.dropout(self.norm(words + segments + positions), training=training)  # (B, S, H)


def attention_bias(input_mask: tf.Tensor, dtype: tf.DType, packed: bool) -> tf.Tensor:
    """Return the bias of attention scores: 0 where a token may attend, a large negative number elsewhere.

    The mask is (B, S), each token's sequence from 1, 0 for padding. The result is (B, 1, 1, S), or (B, 1, S, S) if
    ``packed``, where padding attends to itself, so that no softmax is over masked scores only.
    """
    if not packed:
        return (1.0 - tf.cast(input_mask[:, None, None, :], dtype)) * MASKED_SCORE
    apart = tf.not_equal(input_mask[:, None, :, None], input_mask[:, None, None, :])
    return tf.cast(apart, dtype) * MASKED_SCORE


class SelfAttention(keras.layers.Layer):
    """softmax(Q·Kᵀ / √D + bias)·V for each head; the output concatenates the heads.

    With ``use_qkv_split`` three products make Q, K and V (weights ``query``, ``key``, ``value``, with biases if
    ``use_qkv_bias``); otherwise one product makes all three (weight ``qkv`` (H, 3H), no bias).
    """

    def __init__(self, architecture: Architecture, platform: Platform):
        super().__init__(name="attention")
        a = architecture
        self._heads = a.num_attention_heads
        self._head_size = a.hidden_size // a.num_attention_heads
        self._split = a.use_qkv_split
        self._platform = platform

        def projection(units: int, use_bias: bool, name: str) -> keras.layers.Layer:
            other = other_dense(a, platform, QKV, units, use_bias, name)
            return platform.dense(units, use_bias, INITIALIZER, name) if other is None else other

        if self._split:
            self.query, self.key, self.value = (
                projection(a.hidden_size, a.use_qkv_bias, part) for part in ("query", "key", "value")
            )
        else:
            self.qkv = projection(3 * a.hidden_size, False, "qkv")
        self.attention = platform.attention(a.attention_probs_dropout_prob, name="scaled_dot_product")

    def _queries_keys_values(self, hidden: tf.Tensor) -> List[tf.Tensor]:
        """Return queries, keys and values, each (B, A, S, D)."""
        batch, sequence = tf.shape(hidden)[0], hidden.shape[1] or tf.shape(hidden)[1]
        if self._split:
            layers = (self.query, self.key, self.value)
            joined = self._platform.joined(layers, hidden)  # (B, S, 3H)
            if joined is not None:
                joined = tf.reshape(joined, (batch, sequence, 3, self._heads, self._head_size))
                return tf.unstack(tf.transpose(joined, (2, 0, 3, 1, 4)))
            parts = [layer(hidden) for layer in layers]  # 3 × (B, S, H)
        else:
            parts = tf.split(self.qkv(hidden), 3, axis=-1)  # 3 × (B, S, H)
        shape = (batch, sequence, self._heads, self._head_size)
        return [self._platform.swap_tokens_and_heads(tf.reshape(part, shape)) for part in parts]

    def call(
        self,
        hidden: tf.Tensor,  # (B, S, H)
        bias: tf.Tensor,  # (B, 1, 1 or S, S)
        training: Optional[bool] = None,
    ) -> tf.Tensor:
        query, key, value = self._queries_keys_values(hidden)
        context = self.attention(query, key, value, bias, training=training)  # (B, A, S, D)
        return tf.reshape(self._platform.swap_tokens_and_heads(context), tf.shape(hidden))  # (B, S, H)


def residual_output(architecture: Architecture, platform: Platform, use_bias: bool, name: str) -> keras.layers.Layer:
    """Return norm(residual + dropout(dense(x))), the second half of attention and of the feed-forward layer."""
    a, part = architecture, OUTPUT if name == "output" else PROJECTION
    other = other_dense(a, platform, part, a.hidden_size, use_bias)
    return platform.linear_dropout_norm(
        a.hidden_size, use_bias, INITIALIZER, a.hidden_dropout_prob, a.layer_norm_eps, name, other
    )


class Intermediate(keras.layers.Layer):
    """activation(dense(x)), H → I."""

    def __init__(self, architecture: Architecture, platform: Platform):
        super().__init__(name="intermediate")
        units, function = architecture.intermediate_size, activation(architecture, platform)
        other = other_dense(architecture, platform, INTERMEDIATE, units, activation=function)
        self.dense = activated_dense(architecture, platform, units) if other is None else other

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self.dense(x)  # (B, S, I)


class EncoderLayer(keras.layers.Layer):
    """Attention, then feed-forward (Vaswani et al. 2017, section 3.1), built from its four parts."""

    def __init__(
        self,
        platform: Platform,
        attention: keras.layers.Layer,
        attention_output: keras.layers.Layer,
        intermediate: keras.layers.Layer,
        output: keras.layers.Layer,
    ):
        super().__init__(name="encoder_layer")
        self._platform = platform
        self.attention = attention
        self.attention_output = attention_output
        self.intermediate = intermediate
        self.feed_forward_output = output

    def call(
        self,
        hidden: tf.Tensor,  # (B, S, H)
        bias: tf.Tensor,  # (B, 1, 1 or S, S)
        training: Optional[bool] = None,
    ) -> tf.Tensor:
        def attention(hidden: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
            return self.attention(hidden, bias, training=training)

        context = self._platform.outlined(attention)(hidden, bias)
        attended = self.attention_output(context, hidden, training=training)
        widened = self._platform.outlined(self.intermediate)(attended)
        return self.feed_forward_output(widened, attended, training=training)  # (B, S, H)
