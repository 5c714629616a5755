"""The block-sparse layers of a checkpoint as whole matrices, with zeros where no block exists."""

from __future__ import annotations

from typing import Dict

import numpy as np

from checkpoints.pretrained.weights import Weight, Weights, readable
from sparsity.patterns import dense_matrix
from utilities.errors import UserError

_BLOCKS, _POSITIONS, _SHAPE = "blocks", "positions", "matrix_shape"


def with_whole_matrices(saved: Weights, numbers: Weights) -> Weights:
    """A checkpoint's weights, each block-sparse one by the name that it would have were it dense.

    Args:
        saved: by their names in the checkpoint; that of a sparse layer is ``…/blocks``.
        numbers: its whole numbers; of a sparse layer ``…/positions`` and ``…/matrix_shape``.

    Raises:
        UserError: one of them is missing or cannot be read.
    """
    sparse = [name[: -len(_BLOCKS)] for name in saved if name.endswith(f"/{_BLOCKS}")]
    found: Dict[str, Weight] = dict(saved)
    for stem in sparse:
        blocks, positions, shape = found.pop(stem + _BLOCKS), numbers.get(stem + _POSITIONS), numbers.get(stem + _SHAPE)
        if positions is None or shape is None:
            raise UserError(f"{stem}{_BLOCKS} has no {_POSITIONS} or {_SHAPE} beside it; name a whole checkpoint")
        found[f"{stem}kernel"] = _whole(blocks, positions, shape)
    return found


def _whole(blocks: Weight, positions: Weight, shape: Weight) -> Weight:
    with readable(shape.place):
        inputs, outputs = (int(size) for size in np.asarray(shape.read()))

    def read() -> np.ndarray:
        return dense_matrix(np.asarray(blocks.read()), np.asarray(positions.read()), (inputs, outputs))

    return Weight((inputs, outputs), read, blocks.place)
