"""TensorFlow checkpoints, ``….index`` and ``….data-…``: Google's ``bert_model.ckpt`` and this project's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from checkpoints.pretrained.weights import Weight, Weights, readable
from keras_extensions.backend import tf


def open_tensorflow(prefix: Path, whole_numbers: bool = False) -> Weights:
    """The arrays of a TensorFlow checkpoint, by variable name or by path in the graph of objects.

    Args:
        prefix: path of the checkpoint without ``.index``.
        whole_numbers: those of whole numbers in place of floating-point ones.
    """
    with readable(str(prefix)):
        reader = tf.train.load_checkpoint(str(prefix))
        shapes = reader.get_variable_to_shape_map()
        types = reader.get_variable_to_dtype_map()

    def weight(name: str) -> Weight:
        def read() -> Any:
            return reader.get_tensor(name)

        return Weight(tuple(shapes[name]), read, f"{prefix}: {name}")

    def wanted(name: str) -> bool:
        return types[name].is_integer if whole_numbers else types[name].is_floating

    return {name: weight(name) for name in sorted(shapes) if wanted(name)}
