"""The shape of a BERT, in numbers only: block names, sizes, parameters and operations.

This module does not import TensorFlow, so that configs are validated and plans are printed before it is loaded.

Legend: V vocabulary, H hidden size, I intermediate size, S sequence length, P masked positions per row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, List, Optional, Sequence, Tuple

from sparsity.figures import sparse_weights  # room: sparsity

EMB = "emb"  # embeddings: word, position, token type, LayerNorm
HID = "hid"  # one encoder layer
ENC_OUT = "enc_out"  # gather of the masked positions
POOL = "pool"  # pooler: dense + tanh on [CLS]
HEADS = "heads"  # masked-LM head (tied to the word embedding) and, with a pooler, next-sentence head
QA_HEAD = "qa_head"  # span head
GLUE_HEAD = "glue_head"  # sequence classifier
TOKEN_HEAD = "token_head"  # classifier of each token
EMBEDDING_HEAD = "embedding_head"  # pooling of each sequence's tokens, without weights

BLOCK_NAMES = (EMB, HID, ENC_OUT, POOL, HEADS, QA_HEAD, GLUE_HEAD, TOKEN_HEAD, EMBEDDING_HEAD)

QKV = "qkv"  # query, key and value
PROJECTION = "projection"  # attention's output
INTERMEDIATE = "intermediate"  # feed-forward, H → I
OUTPUT = "output"  # feed-forward, I → H
ENCODER_PARTS = (QKV, PROJECTION, INTERMEDIATE, OUTPUT)  # those of an encoder layer that have matrices

# Fields of ``Architecture`` that say which parts a layer has; Hugging Face's layers have all of them.
LAYER_OPTIONS = ("use_qkv_bias", "use_qkv_split", "use_projection_bias", "use_cls_layer", "use_prediction_bias")

# Fields of ``Architecture`` that a run decides, and not the weights that it starts from: their names in a config.
RUN_OPTIONS = {
    "use_next_sentence": "use_next_sentence",
    "pooling": "embedding.pooling",
    "embedding_serialization_factor": "embedding_serialization_factor",
    "sparsity_ratio": "sparsity.ratio",  # room: sparsity
    "sparsity_block_size": "sparsity.block_size",  # room: sparsity
    "sparse_parts": "sparsity.layers",  # room: sparsity
    "sparsity_kernel": "sparsity.kernel",  # room: sparsity
}

# What a matrix of an encoder layer may be instead of dense: functions of an architecture, a part, inputs and outputs
# that return the number of its weights; None: it is not of that kind.
OTHER_MATRICES: List[Callable[[Architecture, str, int, int], Optional[int]]] = [
    sparse_weights,  # room: sparsity
]


@dataclass(frozen=True)
class Architecture:
    """Sizes and options of one BERT; the defaults are BERT-base as Hugging Face ships it.

    Args:
        embedding_serialization_factor: number of slices in which the tied embedding is looked up and
            multiplied; divides ``vocab_size``. Changes no parameter and no result.

    Source of the sizes: Devlin et al. 2019, section 3.
    """

    hidden_size: int = 768
    vocab_size: int = 30522
    num_attention_heads: int = 12
    num_hidden_layers: int = 12
    intermediate_size: int = 3072
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    hidden_act: str = "gelu"
    use_qkv_bias: bool = False
    use_qkv_split: bool = False
    use_projection_bias: bool = False
    use_cls_layer: bool = False
    use_prediction_bias: bool = True
    use_next_sentence: bool = True
    pooling: str = "mean"
    embedding_serialization_factor: int = 1
    sparsity_ratio: float = 0.0  # room: sparsity
    sparsity_block_size: int = 16  # room: sparsity
    sparse_parts: Sequence[str] = ENCODER_PARTS  # room: sparsity
    sparsity_kernel: str = "auto"  # room: sparsity

    @property
    def has_gelu(self) -> bool:
        """Whether the activation is GeLU, which machines compute in their own ways."""
        return self.hidden_act in ("gelu", "gelu_new")

    @property
    def approximate_gelu(self) -> bool:
        """Whether GeLU is the tanh approximation (Hugging Face's ``gelu_new``) and not the exact one."""
        return self.hidden_act == "gelu_new"

    def matrices(self, part: str) -> List[Tuple[int, int]]:
        """Return inputs and outputs of the matrices of a part of one encoder layer."""
        h, i = self.hidden_size, self.intermediate_size
        if part == QKV:
            return [(h, h)] * 3 if self.use_qkv_split else [(h, 3 * h)]
        return [{PROJECTION: (h, h), INTERMEDIATE: (h, i), OUTPUT: (i, h)}[part]]

    def is_dense(self, part: str) -> bool:
        """Return whether all weights of the matrices of a part of the encoder layers exist."""
        return all(count(self, part, *self.matrices(part)[0]) is None for count in OTHER_MATRICES)

    def matrix_weights(self) -> int:
        weights = 0
        for part in ENCODER_PARTS:
            for inputs, outputs in self.matrices(part):
                counts = (count(self, part, inputs, outputs) for count in OTHER_MATRICES)
                weights += next((number for number in counts if number is not None), inputs * outputs)
        return weights


def block_parameters(architecture: Architecture, block: str, num_labels: int = 2) -> int:
    """Return the number of trainable parameters of one block.

    The masked-LM head multiplies by the word embedding; that table is counted once, in ``emb``.
    """
    h = architecture.hidden_size
    if block == EMB:
        rows = architecture.vocab_size + architecture.max_position_embeddings + architecture.type_vocab_size
        return rows * h + 2 * h
    if block == HID:
        return _layer_parameters(architecture)
    if block in (ENC_OUT, EMBEDDING_HEAD):
        return 0
    if block == POOL:
        return h * h + h
    if block == HEADS:
        transform = h * h + h + 2 * h if architecture.use_cls_layer else 0
        bias = architecture.vocab_size if architecture.use_prediction_bias else 0
        return transform + bias + (2 * h + 2 if architecture.use_next_sentence else 0)
    if block == QA_HEAD:
        return 2 * h + 2
    if block in (GLUE_HEAD, TOKEN_HEAD):
        return num_labels * (h + 1)
    raise ValueError(f"{block!r} is not a block; blocks are {', '.join(BLOCK_NAMES)}")


def _layer_parameters(architecture: Architecture) -> int:
    h, i = architecture.hidden_size, architecture.intermediate_size
    matrices = architecture.matrix_weights()
    biases = (3 * h if architecture.use_qkv_bias else 0) + (h if architecture.use_projection_bias else 0) + i + h
    layer_norms = 2 * (2 * h)
    return matrices + biases + layer_norms


def hidden_matrix_parameters(architecture: Architecture, block: str) -> int:
    """Return the number of parameters in a block's dense matrices from hidden states to hidden states."""
    square = architecture.hidden_size**2
    if block == HID:
        return sum(
            i * o for part in ENCODER_PARTS if architecture.is_dense(part) for i, o in architecture.matrices(part)
        )
    if block == HEADS:
        return square if architecture.use_cls_layer else 0
    return square if block == POOL else 0


def total_parameters(architecture: Architecture, blocks: Sequence[str], num_labels: int = 2) -> int:
    """Return the number of trainable parameters of a model of these blocks, with the tied embedding counted once."""
    return sum(block_parameters(architecture, block, num_labels) for block in blocks)


def block_flops(
    architecture: Architecture,
    block: str,
    sequence_length: int,
    masked_positions: int = 0,
    num_labels: int = 2,
    sequences: int = 1,
) -> int:
    """Return the operations of one row's forward pass through a block: matrix products, 2 operations per multiply-add.

    A pack has several ``sequences``, whose [CLS] are pooled.
    """
    h = architecture.hidden_size
    s, p = sequence_length, masked_positions
    if block == HID:
        matrices = 2 * s * architecture.matrix_weights()
        attention = 2 * 2 * s * s * h  # scores, and their product with the values
        return matrices + attention
    if block == POOL:
        return 2 * h * h * sequences
    if block == HEADS:
        transform = 2 * p * h * h if architecture.use_cls_layer else 0
        next_sentence = 2 * 2 * h * sequences if architecture.use_next_sentence else 0
        return transform + 2 * p * h * architecture.vocab_size + next_sentence
    if block == QA_HEAD:
        return 2 * s * h * 2
    if block == GLUE_HEAD:
        return 2 * h * num_labels * sequences
    if block == TOKEN_HEAD:
        return 2 * s * h * num_labels
    if block == EMBEDDING_HEAD:
        return 2 * s * h * sequences if architecture.pooling == "mean" else 0
    assert block in (EMB, ENC_OUT), block
    return 0


def model_flops_per_sample(
    architecture: Architecture,
    blocks: Sequence[str],
    sequence_length: int,
    masked_positions: int = 0,
    num_labels: int = 2,
    sequences: int = 1,
) -> int:
    """Return the model's floating-point operations to train on one row: forward, and twice that for backward.

    Recomputation is not counted: these are the operations that the model needs, not those that a machine performs.

    Source: the counting of Narayanan et al. 2021 (arXiv 2104.04473), appendix, with the masked-LM head on
    the masked positions only.
    """
    forward = sum(
        block_flops(architecture, b, sequence_length, masked_positions, num_labels, sequences) for b in blocks
    )
    return 3 * forward
