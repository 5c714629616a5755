"""How many weights of a sparse encoder exist.

An architecture describes it by ``sparsity_ratio``, the share of the blocks that do not exist (0: all matrices are
dense), ``sparsity_block_size``, the rows and columns of a block, ``sparse_parts``, the parts of an encoder layer that
are sparse, and ``sparsity_kernel``, how to multiply by them, which changes no result. It counts with these functions.
"""

from __future__ import annotations

from typing import Any, Optional


def is_sparse(architecture: Any, part: str) -> bool:
    """Return whether the matrices of a part of the encoder layers are block-sparse."""
    return architecture.sparsity_ratio > 0 and part in architecture.sparse_parts


def kept_blocks(architecture: Any, inputs: int, outputs: int) -> int:
    """Return how many blocks of a sparse matrix exist: a share of 1 - ``sparsity_ratio``, rounded, at least one."""
    size = architecture.sparsity_block_size
    blocks = (inputs // size) * (outputs // size)
    return max(1, int((1.0 - architecture.sparsity_ratio) * blocks + 0.5))


def sparse_weights(architecture: Any, part: str, inputs: int, outputs: int) -> Optional[int]:
    """Return how many weights of a matrix in a part of the encoder layers exist; None if it is dense."""
    if not is_sparse(architecture, part):
        return None
    return kept_blocks(architecture, inputs, outputs) * architecture.sparsity_block_size**2
