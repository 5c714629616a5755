"""BERT as an ordered list of named blocks, which pipeline stages partition, and as a Keras model of them.

Each block is a Keras layer from named tensors to named tensors. A block declares what it reads and writes, so that a
stage boundary carries exactly what later blocks still read.

A row of the batch is a pack of up to N sequences, each computed as if it stood alone (Krell et al. 2021, arXiv
2107.02027, section 3.2): positions restart with each sequence, attention stays inside it, and the pooler reads every
[CLS]. A padded row is a pack of one sequence; it has no features for positions of sequences, and no extra operations.

B micro batch · S tokens of a row · N sequences of a row · P masked positions · H hidden · V vocabulary · C classes
"""

from __future__ import annotations

from typing import Collection, List, Mapping, Optional, Sequence, Set, Tuple

from execution.interface import HiddenMatrix, Platform, Tensors
from keras_extensions.backend import keras, tf
from model.heads import gather_positions
from model.layers import Embeddings, SelfAttention, attention_bias

CLS_POSITIONS = ("cls_positions", "next_sentence_positions")  # the latter in the records of pre-training


class Block(keras.layers.Layer):
    """A named part of BERT, which names the tensors that it reads, also reads if rows are packs, and writes.

    Of those, ``constants`` depend on no weight and so need no gradient.
    """

    reads: Tuple[str, ...] = ()
    pack_reads: Tuple[str, ...] = ()
    writes: Tuple[str, ...] = ()
    constants: Tuple[str, ...] = ()

    def hidden_layers(self) -> Sequence[keras.layers.Layer]:
        """Return the layers whose dense matrices lead from hidden states to hidden states: all but classifiers."""
        return [self]


class EmbeddingsBlock(Block):
    """``emb``: turns token ids into hidden states, and the mask into the bias of the attention scores."""

    reads = ("input_ids", "input_mask", "segment_ids")
    pack_reads = ("position_ids",)
    writes = ("hidden", "attention_bias")
    constants = ("attention_bias",)

    def __init__(self, embeddings: Embeddings, name: str):
        super().__init__(name=name)
        self.embeddings = embeddings

    def call(self, inputs: Tensors, training: Optional[bool] = None) -> Tensors:
        ids, segments, positions = inputs["input_ids"], inputs["segment_ids"], inputs.get("position_ids")
        hidden = self.embeddings(ids, segments, positions, training=training)  # (B, S, H)
        bias = attention_bias(inputs["input_mask"], hidden.dtype, packed=positions is not None)
        return {"hidden": hidden, "attention_bias": bias}


class EncoderBlock(Block):
    """``hid``: one encoder layer, with a recomputation checkpoint after it."""

    reads = ("hidden", "attention_bias")
    writes = ("hidden",)

    def __init__(self, layer: keras.layers.Layer, platform: Platform, name: str):
        super().__init__(name=name)
        self.layer = layer
        self._platform = platform

    def call(self, inputs: Tensors, training: Optional[bool] = None) -> Tensors:
        def layer(hidden: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
            return self.layer(hidden, bias, training=training)

        return {"hidden": self._platform.checkpointed(layer, inputs["hidden"], inputs["attention_bias"])}


class GatherBlock(Block):
    """``enc_out``: only the hidden states of masked positions, which keeps the product with the vocabulary small."""

    reads = ("hidden", "masked_lm_positions")
    writes = ("masked",)

    def call(self, inputs: Tensors) -> Tensors:
        return {"masked": gather_positions(inputs["hidden"], inputs["masked_lm_positions"])}  # (B, P, H)


class PoolerBlock(Block):
    """``pool``: the pooled [CLS] of every sequence."""

    reads = ("hidden",)
    pack_reads = CLS_POSITIONS
    writes = ("pooled",)

    def __init__(self, pooler: keras.layers.Layer, name: str):
        super().__init__(name=name)
        self.pooler = pooler

    def call(self, inputs: Tensors) -> Tensors:
        positions = next((inputs[name] for name in CLS_POSITIONS if name in inputs), None)
        if positions is None:
            return {"pooled": self.pooler(inputs["hidden"])}  # (B, H)
        first = gather_positions(inputs["hidden"], positions)  # (B, N, H)
        width = first.shape[-1]
        pooled = self.pooler(tf.reshape(first, (-1, 1, width)))  # (B·N, H): each [CLS] is a sequence of one token
        return {"pooled": tf.reshape(pooled, (-1, first.shape[1], width))}  # (B, N, H)


class MaskedLMBlock(Block):
    """``heads`` without next-sentence prediction: scores of masked words."""

    reads: Tuple[str, ...] = ("masked",)
    writes: Tuple[str, ...] = ("masked_lm",)

    def __init__(self, masked_lm: keras.layers.Layer, name: str):
        super().__init__(name=name)
        self.masked_lm = masked_lm

    def call(self, inputs: Tensors) -> Tensors:
        return {"masked_lm": self.masked_lm(inputs["masked"])}  # (B, P, V)

    def hidden_layers(self) -> Sequence[keras.layers.Layer]:
        return [self.masked_lm]


class PretrainingHeads(MaskedLMBlock):
    """``heads``: scores of masked words and of the next sentence."""

    reads = ("masked", "pooled")
    writes = ("masked_lm", "next_sentence")

    def __init__(self, masked_lm: keras.layers.Layer, next_sentence: keras.layers.Layer, name: str):
        super().__init__(masked_lm, name=name)
        self.next_sentence = next_sentence

    def call(self, inputs: Tensors) -> Tensors:
        # (B, 2), in packs (B, N, 2)
        return {**super().call(inputs), "next_sentence": self.next_sentence(inputs["pooled"])}


class SpanHeadBlock(Block):
    """``qa_head``: scores of every token as the start and as the end of the answer."""

    reads = ("hidden",)
    writes = ("start_logits", "end_logits")

    def __init__(self, head: keras.layers.Layer, name: str):
        super().__init__(name=name)
        self.head = head

    def call(self, inputs: Tensors) -> Tensors:
        start, end = tf.unstack(self.head(inputs["hidden"]), axis=-1)  # (B, S) each
        return {"start_logits": start, "end_logits": end}

    def hidden_layers(self) -> Sequence[keras.layers.Layer]:
        return []


class ClassifierBlock(Block):
    """``glue_head`` and ``token_head``: scores of the classes of each sequence (``pooled``) or token (``hidden``)."""

    writes = ("logits",)

    def __init__(self, head: keras.layers.Layer, source: str, name: str):
        super().__init__(name=name)
        self.reads = (source,)
        self.head = head

    def call(self, inputs: Tensors, training: Optional[bool] = None) -> Tensors:
        # (B, C), in packs (B, N, C); of tokens (B, S, C)
        return {"logits": self.head(inputs[self.reads[0]], training=training)}

    def hidden_layers(self) -> Sequence[keras.layers.Layer]:
        return []


class EmbeddingBlock(Block):
    """``embedding_head``: one vector for each sequence, computed in float32; it has no weights.

    ``mean`` averages the hidden states of a sequence's tokens, ``cls`` takes that of its [CLS].
    """

    reads = ("hidden", "input_mask")
    pack_reads = ("cls_positions",)
    writes = ("embeddings",)

    def __init__(self, pooling: str, name: str):
        super().__init__(name=name)
        self._pooling = pooling

    def call(self, inputs: Tensors) -> Tensors:
        hidden, positions = tf.cast(inputs["hidden"], tf.float32), inputs.get("cls_positions")  # (B, S, H), (B, N)
        if self._pooling == "cls":
            return {"embeddings": hidden[:, 0] if positions is None else gather_positions(hidden, positions)}
        count = 1 if positions is None else positions.shape[1]
        numbers = tf.range(1, count + 1)[None, :, None]
        is_part = tf.cast(tf.equal(inputs["input_mask"][:, None, :], numbers), tf.float32)  # (B, N, S)
        tokens = tf.maximum(tf.reduce_sum(is_part, axis=-1, keepdims=True), 1.0)
        means = tf.matmul(is_part, hidden) / tokens  # (B, N, H), zeros where a pack has fewer sequences
        return {"embeddings": means[:, 0] if positions is None else means}


class PassBlock(Block):
    """A block that a published config names although its task does not need it: hidden states pass unchanged."""

    reads = ("hidden",)
    writes = ("hidden",)

    def call(self, inputs: Tensors) -> Tensors:
        return {"hidden": inputs["hidden"]}


@tf.autograph.experimental.do_not_convert  # no layer here has a condition on a tensor, and rewriting all takes seconds
def run_blocks(blocks: List[Block], tensors: Tensors) -> Tensors:
    """Apply ``blocks`` in order, and return ``tensors`` with their results."""
    tensors = dict(tensors)
    for block in blocks:
        tensors.update(block({name: tensors[name] for name in block.reads}))
    return tensors


def fit_rows(blocks: List[Block], features: Collection[str]) -> List[str]:
    """Make ``blocks`` read also those of :attr:`Block.pack_reads` that are among the ``features`` of the rows.

    Returns the names that they read from outside, in order of first use.
    """
    written: Set[str] = set()
    needed: List[str] = []
    for block in blocks:
        block.reads += tuple(name for name in block.pack_reads if name in features and name not in block.reads)
        needed += [name for name in block.reads if name not in written and name not in needed]
        written.update(block.writes)
    return needed


def hidden_matrices(blocks: Sequence[Block]) -> List[HiddenMatrix]:
    """Return the dense matrices of the encoder layers, the pooler and the masked-LM head's transform, once built.

    Embeddings and block-sparse matrices do not belong to dense layers, so they are not included.
    """
    layers = [layer for block in blocks for top in block.hidden_layers() for layer in (top, *top.submodules)]
    merged = [getattr(layer, "qkv", None) for layer in layers if isinstance(layer, SelfAttention)]
    return [
        HiddenMatrix(layer.kernel, parts=3 if any(layer is one for one in merged) else 1)
        for layer in layers
        if isinstance(layer, keras.layers.Dense)
    ]


def build_weights(blocks: List[Block], features: Collection[str], platform: Platform) -> None:
    """Create the weights of ``blocks`` by calling them with one token; for ``features``, see :func:`fit_rows`."""
    with platform.scope():
        run_blocks(blocks, dict.fromkeys(fit_rows(blocks, features), tf.zeros((1, 1), tf.int32)))


def assemble(
    blocks: List[Block],
    shapes: Mapping[str, Tuple[int, ...]],
    outputs: Sequence[str],
    stages: Sequence[Sequence[str]],
    platform: Platform,
) -> keras.Model:
    """Return a functional model of ``blocks``.

    The ``shapes`` of a row's features say whether it is a pack: then positions of its sequences are among them.
    """
    with platform.scope():
        inputs = {name: platform.model_input(shapes[name], "int32", name) for name in fit_rows(blocks, shapes)}
        tensors, left, layout = inputs, list(blocks), []
        for number, stage in enumerate(stages):
            own, left = left[: len(stage)], left[len(stage) :]
            with platform.stage(number):
                tensors = run_blocks(own, tensors)
            layout.append([block.name for block in own])
        assert not left, "stages name fewer blocks than the model has"
        return platform.model(inputs, {name: tensors[name] for name in outputs}, layout)
