"""HDF5, ``tf_model.h5``.

A whole model is saved by Keras, one group a layer and in it the weights by the names of their variables; a model in
parts by Transformers, by the names of the variables alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py

from checkpoints.pretrained.weights import Weight, Weights, readable

_KERAS = "weight_names"  # what Keras notes in the group of a layer


def open_hdf5(path: Path) -> Weights:
    """The arrays of an HDF5 file, by variable name."""
    weights: Weights = {}

    def visit(name: str, item: Any) -> None:
        if not isinstance(item, h5py.Dataset):
            return

        def read() -> Any:
            with h5py.File(path, "r") as file:
                return file[name][()]

        layer, _, rest = name.partition("/")
        variable = rest if _KERAS in item.file[layer].attrs else name
        weights[variable] = Weight(tuple(item.shape), read, f"{path}: {name}")

    with readable(str(path)), h5py.File(path, "r") as file:
        file.visititems(visit)
    return weights
