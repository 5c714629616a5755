"""Reads the variables of sparse layers in a checkpoint as the matrices of dense ones."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict

import numpy as np

from sparsity.patterns import dense_matrix
from utilities.errors import UserError

BLOCKS, POSITIONS, SHAPE = "blocks", "positions", "matrix_shape"  # variables of a layer


def with_dense_matrices(saved: Dict[str, Any], integers: Dict[str, Any]) -> Dict[str, Any]:
    """Replace the blocks of each sparse layer by the dense matrix, with zeros where no block exists."""
    dense = dict(saved)
    for name in saved:
        if not name.endswith(f"/{BLOCKS}"):
            continue
        layer = name[: -len(BLOCKS)]
        positions, shape = integers.get(layer + POSITIONS), integers.get(layer + SHAPE)
        if positions is None or shape is None:
            raise UserError(f"{name} lacks its {POSITIONS} or {SHAPE}; name a whole checkpoint")
        dense[f"{layer}kernel"] = _dense(dense.pop(name), positions, shape)
    return dense


def _dense(blocks: Any, positions: Any, shape: Any) -> Any:
    inputs, outputs = (int(size) for size in shape.value())

    def read() -> np.ndarray:
        return dense_matrix(np.asarray(blocks.read()), np.asarray(positions.read()), (inputs, outputs))

    return dataclasses.replace(blocks, shape=(inputs, outputs), read=read)
