"""How BERT's weights are created: as zeros, because the conversion fills all of them.

The random initial weights are Hugging Face's (truncated normal, Devlin et al. 2019), drawn once in the source model.
"""

from __future__ import annotations

from execution.interface import Platform
from keras_extensions.backend import keras
from model.architecture import OUTPUT, Architecture
from sparsity.layer import BlockSparseDense

INITIALIZER = "zeros"


def dense(units: int, use_bias: bool = True, name: str = "dense") -> keras.layers.Dense:
    """Return a dense layer whose weights the conversion will fill."""
    return keras.layers.Dense(units, use_bias=use_bias, kernel_initializer=INITIALIZER, name=name)


def encoder_dense(
    architecture: Architecture, platform: Platform, part: str, units: int, use_bias: bool = True, name: str = "dense"
) -> keras.layers.Layer:
    """Return a fully connected layer of the encoder, block-sparse if the architecture says so.

    Args:
        part: of an encoder layer, one of ``model.architecture.SPARSE_PARTS``.
        units: outputs.
        use_bias: whether there is a bias.
        name: of the layer.
    """
    if not architecture.is_sparse(part):
        return dense(units, use_bias, name)
    inputs = architecture.intermediate_size if part == OUTPUT else architecture.hidden_size
    count = architecture.kept_blocks(inputs, units)
    block_size, kernel = architecture.sparsity_block_size, architecture.sparsity_kernel
    return BlockSparseDense(units, block_size, count, use_bias, kernel, platform.runs_host_code(), name)
