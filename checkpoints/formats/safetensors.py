"""Safetensors, as PyTorch's and TensorFlow's Hugging Face models are saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 (teaches NumPy the number format bfloat16)
from safetensors import safe_open

from checkpoints.pretrained.weights import Weight, Weights, readable

TENSORFLOW_NAMES = "tf"  # what Transformers writes into a file's metadata; "pt" is PyTorch


def open_safetensors(path: Path) -> Weights:
    """The arrays of a safetensors file."""

    def weight(file: Any, name: str) -> Weight:
        def read() -> Any:
            with safe_open(str(path), framework="numpy") as opened:
                return opened.get_tensor(name)

        return Weight(tuple(file.get_slice(name).get_shape()), read, f"{path}: {name}")

    with readable(str(path)), safe_open(str(path), framework="numpy") as file:
        return {name: weight(file, name) for name in file.keys()}  # noqa: SIM118 (no mapping)


def has_tensorflow_names(path: Path) -> bool:
    """Whether a TensorFlow model wrote the file."""
    with readable(str(path)), safe_open(str(path), framework="numpy") as file:
        return (file.metadata() or {}).get("format") == TENSORFLOW_NAMES
