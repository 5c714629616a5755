"""Blocks for packs: several sequences in one row of the batch, each computed as if it stood alone.

What changes against one sequence a row is what looks beyond its own token (Krell et al. 2021, arXiv 2107.02027,
section 3.2): positions restart with each sequence, attention stays inside it, and the pooler reads every [CLS].

B micro batch of packs · S tokens of a pack · N sequences in a pack at most · H hidden
"""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

from execution.interface import Tensors
from keras_extensions.backend import keras, tf
from model.bert import token_shapes
from model.blocks import Block, EmbeddingsBlock, PoolerBlock
from model.embeddings import MASKED_SCORE
from model.heads import gather_positions

NEXT_SENTENCE_POSITIONS = "next_sentence_positions"


class PackedEmbeddingsBlock(EmbeddingsBlock):
    """``emb`` of packs: positions are given, and attention is confined to sequences."""

    reads = ("input_ids", "input_mask", "segment_ids", "position_ids")

    def call(self, inputs: Tensors, training: Optional[bool] = None) -> Tensors:
        ids, segments, positions = inputs["input_ids"], inputs["segment_ids"], inputs["position_ids"]
        hidden = self.embeddings(ids, segments, positions, training=training)  # (B, S, H)
        return {"hidden": hidden, "attention_bias": block_diagonal_bias(inputs["input_mask"], hidden.dtype)}


class PackedPoolerBlock(PoolerBlock):
    """``pool`` of packs: the pooled [CLS] of every sequence.

    Args:
        cls_positions: the input (B, N) that tells where each [CLS] is.
    """

    def __init__(self, pooler: keras.layers.Layer, cls_positions: str, name: str = "pool"):
        super().__init__(pooler, name=name)
        self._cls_positions = cls_positions
        self.reads = ("hidden", cls_positions)

    def call(self, inputs: Tensors) -> Tensors:
        first = gather_positions(inputs["hidden"], inputs[self._cls_positions])  # (B, N, H)
        width = first.shape[-1]
        pooled = self.pooler(tf.reshape(first, (-1, 1, width)))  # (B·N, H): each [CLS] a sequence of one token
        return {"pooled": tf.reshape(pooled, (-1, first.shape[1], width))}  # (B, N, H)


def packed(blocks: List[Block], cls_positions: str = NEXT_SENTENCE_POSITIONS) -> List[Block]:
    """The same blocks, with the same layers and weights, for packs.

    Args:
        blocks: of a task's model.
        cls_positions: name of the input that tells where each sequence's [CLS] is, for tasks that pool it.
    """
    return [_packed(block, cls_positions) for block in blocks]


def _packed(block: Block, cls_positions: str) -> Block:
    if isinstance(block, EmbeddingsBlock):
        return PackedEmbeddingsBlock(block.embeddings, name=block.name)
    if isinstance(block, PoolerBlock):
        return PackedPoolerBlock(block.pooler, cls_positions, name=block.name)
    return block


def block_diagonal_bias(input_mask: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """What is added to attention scores: 0 within a sequence, a large negative number between sequences.

    Args:
        input_mask: (B, S), the number of the sequence that a token belongs to, from 1; 0 for padding, which attends to
            itself so that its softmax has something to sum.
        dtype: of the scores.

    Returns:
        (B, 1, S, S), broadcast over heads.
    """
    apart = tf.not_equal(input_mask[:, None, :, None], input_mask[:, None, None, :])
    return tf.cast(apart, dtype) * MASKED_SCORE


def packed_token_shapes(sequence_length: int) -> Dict[str, Tuple[int, ...]]:
    """Shapes of what every model of packs reads, for one pack; all are int32."""
    return {**token_shapes(sequence_length), "position_ids": (sequence_length,)}


def packed_pretraining_shapes(
    sequence_length: int, masked_positions: int, sequences: int
) -> Dict[str, Tuple[int, ...]]:
    """Shapes of the model's inputs for one pack; all are int32.

    Args:
        sequence_length: S.
        masked_positions: masked positions in a pack at most.
        sequences: N.
    """
    masked = {"masked_lm_positions": (masked_positions,)}
    return {**packed_token_shapes(sequence_length), **masked, NEXT_SENTENCE_POSITIONS: (sequences,)}
