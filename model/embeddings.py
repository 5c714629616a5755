"""The sum of word, position and segment embeddings, normalised (Devlin et al. 2019, figure 2).

B micro batch · S sequence · H hidden · V vocabulary · M maximum positions · T segment types
"""

from __future__ import annotations

from typing import Optional

from execution.interface import Platform
from keras_extensions.backend import keras, tf
from model.architecture import Architecture
from model.weights import INITIALIZER

# Masked keys get this added to their attention score: exp() of it is 0 in float32, and float16 can hold it.
MASKED_SCORE = -10000.0


class Embeddings(keras.layers.Layer):
    """Sum of three embeddings, then LayerNorm and dropout.

    Weights: ``word`` (V, H), shared with the masked-LM head; ``position`` (M, H); ``segment`` (T, H).
    """

    def __init__(self, architecture: Architecture, platform: Platform, name: str = "embeddings"):
        super().__init__(name=name)
        self._architecture = architecture
        self._platform = platform
        self.norm = platform.layer_normalization(architecture.layer_norm_eps, name="norm")
        self.dropout = platform.dropout(architecture.hidden_dropout_prob, name="dropout")

    def build(self, input_shape) -> None:
        a = self._architecture
        self.word = self._table("word", a.vocab_size)
        self.position = self._table("position", a.max_position_embeddings)
        self.segment = self._table("segment", a.type_vocab_size)
        super().build(input_shape)

    def _table(self, name: str, rows: int) -> tf.Variable:
        shape = (rows, self._architecture.hidden_size)
        return self.add_weight(name, shape, initializer=INITIALIZER)

    def word_table(self) -> tf.Tensor:
        """Return the word embedding as a tensor (V, H), for the tied masked-LM head."""
        return tf.convert_to_tensor(self.word)

    def call(
        self,
        input_ids: tf.Tensor,  # (B, S) int32
        segment_ids: tf.Tensor,  # (B, S) int32
        position_ids: Optional[tf.Tensor] = None,  # (B, S) int32; None counts from 0
        training: Optional[bool] = None,
    ) -> tf.Tensor:
        lookup = self._platform.embedding_lookup
        words = lookup(self.word_table(), input_ids, self._architecture.embedding_serialization_factor)  # (B, S, H)
        segments = lookup(tf.convert_to_tensor(self.segment), segment_ids)  # (B, S, H)
        if position_ids is None:
            positions = self.position[: tf.shape(input_ids)[1]]  # (S, H)
        else:
            positions = lookup(tf.convert_to_tensor(self.position), position_ids)  # (B, S, H)
        return self.dropout(self.norm(words + segments + positions), training=training)  # (B, S, H)


def attention_bias(input_mask: tf.Tensor, dtype: tf.DType, packed: bool) -> tf.Tensor:
    """Return what is added to attention scores: 0 where a token may look, a large negative number elsewhere.

    Args:
        input_mask: (B, S), the number of the sequence in the row that a token belongs to, from 1; 0 for padding.
        dtype: of the scores.
        packed: whether rows hold several sequences. In packs, padding attends to itself, so that its softmax has
            something to sum.

    Returns:
        (B, 1, 1, S) for padded rows, (B, 1, S, S) for packs, broadcast over heads and queries.
    """
    if not packed:
        return (1.0 - tf.cast(input_mask[:, None, None, :], dtype)) * MASKED_SCORE
    apart = tf.not_equal(input_mask[:, None, :, None], input_mask[:, None, None, :])
    return tf.cast(apart, dtype) * MASKED_SCORE
