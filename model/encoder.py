"""One encoder layer: self-attention and feed-forward, each with a residual and LayerNorm after it.

Only the parts between the dropouts are outlined: code that draws random numbers is compiled again for each call.

B micro batch · S sequence · H hidden · I intermediate
"""

from __future__ import annotations

from typing import Optional

from execution.interface import Platform
from keras_extensions.backend import keras, tf
from model.architecture import INTERMEDIATE, OUTPUT, PROJECTION, Architecture
from model.weights import encoder_dense


class ResidualOutput(keras.layers.Layer):
    """norm(residual + dropout(dense(x))), the second half of attention and of the feed-forward layer."""

    def __init__(self, architecture: Architecture, platform: Platform, use_bias: bool, name: str):
        super().__init__(name=name)
        part = OUTPUT if name == "output" else PROJECTION
        self.dense = encoder_dense(architecture, platform, part, architecture.hidden_size, use_bias)
        self.dropout = platform.dropout(architecture.hidden_dropout_prob, name="dropout")
        self.norm = platform.layer_normalization(architecture.layer_norm_eps, name="norm")
        self._platform = platform

    def call(self, x: tf.Tensor, residual: tf.Tensor, training: Optional[bool] = None) -> tf.Tensor:
        projected = self._platform.outlined(self.dense)(x)
        return self.norm(residual + self.dropout(projected, training=training))  # (B, S, H)


class Intermediate(keras.layers.Layer):
    """gelu(dense(x)), H → I."""

    def __init__(self, architecture: Architecture, platform: Platform, name: str = "intermediate"):
        super().__init__(name=name)
        self.dense = encoder_dense(architecture, platform, INTERMEDIATE, architecture.intermediate_size)
        self._platform = platform
        self._approximate = architecture.approximate_gelu

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self._platform.gelu(self.dense(x), self._approximate)  # (B, S, I)


class EncoderLayer(keras.layers.Layer):
    """Attention, then feed-forward (Vaswani et al. 2017, section 3.1), built from its four parts."""

    def __init__(
        self,
        platform: Platform,
        attention: keras.layers.Layer,
        attention_output: keras.layers.Layer,
        intermediate: keras.layers.Layer,
        output: keras.layers.Layer,
        name: str = "encoder_layer",
    ):
        super().__init__(name=name)
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
