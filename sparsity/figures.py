"""The numbers of a sparse encoder: weights that exist, and the model compared with the dense one.

An architecture describes it by ``sparsity_ratio``, the share of the blocks that do not exist (0: all matrices are
dense), ``sparsity_block_size``, the rows and columns of a block, ``sparse_parts``, the parts of an encoder layer that
are sparse, and ``sparsity_kernel``, how to multiply by them, which changes no result.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple

if TYPE_CHECKING:  # counts with these functions
    from model.architecture import Architecture


def is_sparse(architecture: Architecture, part: str) -> bool:
    """Return whether the matrices of a part of the encoder layers are block-sparse."""
    return architecture.sparsity_ratio > 0 and part in architecture.sparse_parts


def kept_blocks(architecture: Architecture, inputs: int, outputs: int) -> int:
    """Return how many blocks of a sparse matrix exist: a share of 1 - ``sparsity_ratio``, rounded, at least one."""
    size = architecture.sparsity_block_size
    blocks = (inputs // size) * (outputs // size)
    return max(1, int((1.0 - architecture.sparsity_ratio) * blocks + 0.5))


def sparse_weights(architecture: Architecture, part: str, inputs: int, outputs: int) -> Optional[int]:
    """Return how many weights of a matrix in a part of the encoder layers exist; None if it is dense."""
    if not is_sparse(architecture, part):
        return None
    return kept_blocks(architecture, inputs, outputs) * architecture.sparsity_block_size**2


def compared_with_dense(
    architecture: Architecture, parameters: Callable[[Architecture], int], flops: Callable[[Architecture], int]
) -> Tuple[Dict[str, Any], List[Tuple[str, str]]]:
    """Return the figures of a model, with their ratio to those of the dense model, and rows for the plan.

    Both are empty if the model is dense.

    Args:
        parameters: counts the parameters of an architecture.
        flops: counts the operations of a row of the batch, forward and backward.
    """
    if not architecture.sparsity_ratio:
        return {}, []
    dense = dataclasses.replace(architecture, sparsity_ratio=0.0)
    density = architecture.matrix_weights() / dense.matrix_weights()
    of_parameters, of_flops = (count(architecture) / count(dense) for count in (parameters, flops))
    figures = {
        "encoder_density": density,
        "trainable_parameters": parameters(architecture),
        "parameters_of_dense": of_parameters,
        "flops_per_sample": flops(architecture),
        "flops_of_dense": of_flops,
    }
    rows = [
        ("sparse encoder", f"{density:.1%} of its matrices' weights exist"),
        ("compared with dense", f"{of_parameters:.1%} of the parameters, {of_flops:.1%} of the FLOPs"),
    ]
    return figures, rows
