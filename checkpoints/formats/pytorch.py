"""PyTorch's ``pytorch_model.bin``, without PyTorch and without running what is pickled in it.

The file is a zip of a pickle, which says how to put tensors together, and of the numbers, one entry a storage. The
pickle's instructions are read one by one; the few names that tensors need are given stand-ins here that only note their
arguments, and any other name or instruction is refused.
"""

from __future__ import annotations

import json
import shlex
import sys
import zipfile
from pathlib import Path
from typing import Any, Dict, NamedTuple, Tuple

import ml_dtypes
import numpy as np

from checkpoints.formats.notes import Name, NotesError, read_notes
from checkpoints.pretrained.weights import Weight, Weights, readable
from utilities.errors import UserError

_STORAGES: Dict[str, np.dtype] = {
    "FloatStorage": np.dtype("float32"),
    "DoubleStorage": np.dtype("float64"),
    "HalfStorage": np.dtype("float16"),
    "BFloat16Storage": np.dtype(ml_dtypes.bfloat16),
    "LongStorage": np.dtype("int64"),
    "IntStorage": np.dtype("int32"),
    "ShortStorage": np.dtype("int16"),
    "CharStorage": np.dtype("int8"),
    "ByteStorage": np.dtype("uint8"),
    "BoolStorage": np.dtype("bool"),
}


class Storage(NamedTuple):
    """Numbers of one type, an entry of the zip."""

    dtype: np.dtype
    key: str


class Tensor(NamedTuple):
    """A view of a storage; offset and strides count numbers."""

    storage: Storage
    offset: int
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]


def _tensor(storage: Storage, offset: int, shape: Any, strides: Any, *_: Any) -> Tensor:
    return Tensor(storage, offset, tuple(shape), tuple(strides))


def _parameter(tensor: Tensor, *_: Any) -> Tensor:
    return tensor


_NAMES: Dict[Tuple[str, str], Name] = {
    ("collections", "OrderedDict"): Name(dict),
    ("torch._utils", "_rebuild_tensor_v2"): Name(_tensor),
    ("torch._utils", "_rebuild_parameter"): Name(_parameter),
    **{("torch", name): Name(name, callable=False) for name in _STORAGES},
}


def _storage(persistent_id: Any) -> Storage:
    kind, storage, key = persistent_id[:3]
    if kind != "storage" or storage not in _STORAGES or not isinstance(key, str):
        raise NotesError("it refers to something else than numbers")
    return Storage(_STORAGES[storage], key)


def open_pytorch(path: Path) -> Weights:
    """The arrays of a ``pytorch_model.bin``.

    Raises:
        UserError: the file is of the format before PyTorch 1.6, or its pickle asks for more than tensors.
    """
    if not zipfile.is_zipfile(path):
        raise UserError(
            f"{path}: no zip file, as PyTorch writes since 1.6; convert it where PyTorch is installed:"
            f" {conversion(path)}"
        )
    with readable(str(path)), zipfile.ZipFile(path) as file:
        (notes,) = [name for name in file.namelist() if name == "data.pkl" or name.endswith("/data.pkl")]
        folder = notes[: -len("data.pkl")]
        order = file.read(f"{folder}byteorder").decode() if f"{folder}byteorder" in file.namelist() else "little"
        try:
            content = read_notes(file.read(notes), _NAMES, _storage)
        except NotesError as error:
            raise UserError(
                f"{path}: not read, because {error}; if you trust the file, convert it where PyTorch is installed:"
                f" {conversion(path)}"
            ) from error
        if isinstance(content, dict) and isinstance(content.get("state_dict"), dict):
            content = content["state_dict"]
        if not isinstance(content, dict):
            raise ValueError("it holds no table of weights")
    tensors = {name: tensor for name, tensor in content.items() if isinstance(tensor, Tensor)}
    return {str(name): _weight(path, folder, order, str(name), tensor) for name, tensor in tensors.items()}


def _weight(path: Path, folder: str, order: str, name: str, tensor: Tensor) -> Weight:
    def read() -> np.ndarray:
        with zipfile.ZipFile(path) as file:
            numbers = file.read(f"{folder}data/{tensor.storage.key}")
        dtype = tensor.storage.dtype
        strides = tuple(stride * dtype.itemsize for stride in tensor.strides)
        array: np.ndarray = np.ndarray(tensor.shape, dtype, numbers, tensor.offset * dtype.itemsize, strides)
        return array if order == sys.byteorder else array.byteswap()

    return Weight(tensor.shape, read, f"{path}: {name}")


def conversion(path: Path) -> str:
    """The command that makes a safetensors file of a ``.bin``."""
    source, target = json.dumps(str(path)), json.dumps(str(path.with_name("model.safetensors")))
    code = (
        "import torch; from safetensors.torch import save_file; "
        f'w = torch.load({source}, map_location="cpu", weights_only=True); '
        f'save_file({{k: v.clone().contiguous() for k, v in w.items()}}, {target}, {{"format": "pt"}})'
    )
    return f"python -c {shlex.quote(code)}"
