"""Computes what SavedModels return with no package but TensorFlow and NumPy, in a separate process.

    python tests/support/tensorflow_alone.py DATA.npz FOLDER …

FOLDER.alone.npz gets the outputs for all texts of DATA together, ``padded/…``; and for each text without its padding,
``row 0/…`` with its segments, ``first segment 0/…`` without, and ``one text 0/…`` by the signature for that.
"""

from __future__ import annotations

import sys

for name in ("keras", "tf_keras", "transformers", "checkpoints", "execution", "model"):
    sys.modules[name] = None  # type: ignore[assignment]  # cannot be imported

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402


def outputs(folder: str, data: dict[str, np.ndarray]) -> dict[str, dict[str, tf.Tensor]]:
    signatures = tf.saved_model.load(f"{folder}/saved_model/1").signatures
    serve, one_text = signatures["serving_default"], signatures["one_text"]
    result = {"padded": serve(**data)}
    for number, length in enumerate(data["attention_mask"].sum(axis=1)):
        row = {name: tf.constant(values[number : number + 1, :length]) for name, values in data.items()}
        result[f"row {number}"] = serve(**row)
        row["token_type_ids"] = tf.zeros_like(row["token_type_ids"])
        result[f"first segment {number}"] = serve(**row)
        del row["token_type_ids"]
        result[f"one text {number}"] = one_text(**row)
    return result


if __name__ == "__main__":
    texts = dict(np.load(sys.argv[1]))
    for path in sys.argv[2:]:
        given = outputs(path, texts).items()
        flat = {f"{key}/{name}": value for key, found in given for name, value in found.items()}
        np.savez(f"{path}.alone.npz", **flat)
