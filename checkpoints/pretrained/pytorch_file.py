"""Reads PyTorch's ``pytorch_model.bin`` without PyTorch and without running any code from the file.

The file is a zip of a pickle, which describes the tensors, and of their numbers, with one entry per storage. A pickle
can name any function of any module and have it called. The unpickler here imports nothing: it knows the few names that
tensors need, and resolves each to a function of this module that only records its arguments, or to a text. Any other
name is refused (see "Restricting Globals" in the documentation of Python's ``pickle``).
"""

from __future__ import annotations

import io
import json
import pickle
import pickletools
import shlex
import sys
import zipfile
from pathlib import Path
from typing import Any, Callable, Dict, NamedTuple, Tuple, Union

import ml_dtypes
import numpy as np

from checkpoints.pretrained.weights import Weight, Weights, readable
from utilities.errors import UserError
from utilities.tables import listed

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
# Bounds on memory and on the depth of nested values; BERT-large has 60 kB and 1,600 tuples.
_MAX_PICKLE_BYTES = 1 << 20
_MAX_TUPLES = 20_000
_MAX_AXES = 64
_MAX_NUMBER = 1 << 63


class Storage(NamedTuple):
    """Numbers of one type, an entry of the zip. The type is a text, because dtypes are mutable."""

    type: str
    key: str


class Tensor(NamedTuple):
    """A view of a storage; offset and strides count numbers."""

    storage: Storage
    offset: int
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]


_PICKLE = b"\x80"  # first byte of a pickle
_QUANTIZED = "is quantized to 8 bits"
_MOST_COMPRESSED = 4  # times; PyTorch does not compress, and weights shrink by a tenth


class _RefusedError(Exception):
    """The pickle asks for something that is not part of a tensor."""


class _StateDict(dict):
    """The replacement of ``OrderedDict``; attributes such as a module's versions are ignored."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        """Ignore the attributes."""


class _Function:
    """A function that a pickle may call, but whose attributes it cannot set."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def __setstate__(self, state: object) -> None:
        raise _RefusedError("it asks for the attributes of a function to be set, which no tensor needs")


def _state_dict() -> _StateDict:  # takes no arguments, because a pickle could use them to copy a large table many times
    return _StateDict()


def _tensor(storage: Storage, offset: int, shape: Tuple[int, ...], strides: Tuple[int, ...], *_: Any) -> Tensor:
    if not isinstance(storage, Storage):
        raise ValueError("a tensor is not a view of a storage")
    for numbers in ((offset,), shape, strides):
        is_short_tuple = isinstance(numbers, tuple) and len(numbers) <= _MAX_AXES
        if not is_short_tuple or any(type(number) is not int or abs(number) >= _MAX_NUMBER for number in numbers):
            raise ValueError("a shape is not a tuple of whole numbers")
    return Tensor(storage, offset, shape, strides)


def _parameter(tensor: Tensor, *_: Any) -> Tensor:
    if not isinstance(tensor, Tensor):
        raise ValueError("a parameter is not a tensor")
    return tensor


# Everything to which a name in a pickle can resolve: an unchangeable function, or a text.
_NAMES: Dict[Tuple[str, str], Union[_Function, str]] = {
    ("collections", "OrderedDict"): _Function(_state_dict),
    ("torch._utils", "_rebuild_tensor_v2"): _Function(_tensor),
    ("torch._utils", "_rebuild_parameter"): _Function(_parameter),
    **{("torch", name): name for name in _STORAGES},
}


class _TensorUnpickler(pickle.Unpickler):
    """An unpickler that resolves only the names of ``_NAMES``."""

    def find_class(self, module: str, name: str) -> Union[_Function, str]:
        if (module, name) == ("torch._utils", "_rebuild_tensor_v3"):  # of formats that older versions lack
            raise _RefusedError(_QUANTIZED)
        if (module, name) not in _NAMES:
            shown = ascii(f"{module}.{name}")[1:-1]
            raise _RefusedError(f"it asks for {shown[:100]}, which is not part of a tensor")
        return _NAMES[module, name]

    def persistent_load(self, identifier: Any) -> Storage:
        kind, storage, key = identifier[:3] if isinstance(identifier, tuple) else (None, None, None)
        if kind != "storage" or not isinstance(storage, str) or storage not in _STORAGES or not isinstance(key, str):
            raise _RefusedError("it refers to something other than numbers")
        return Storage(storage, key)


def _unpickled(data: bytes) -> Any:
    """Return the content of a pickle as plain values and ``Tensor`` objects."""
    _check_instructions(data)
    return _TensorUnpickler(io.BytesIO(data)).load()


def _check_instructions(data: bytes) -> None:
    """Refuse the instructions that evade ``find_class`` (EXT), use much memory (PUT) or nest tuples too deeply."""
    tuples = 0
    for instruction, argument, _ in pickletools.genops(data):
        if instruction.name.startswith("EXT"):
            raise _RefusedError("it asks for an extension of copyreg, which no tensor needs")
        if instruction.name.endswith("PUT") and (argument or 0) > len(data):
            raise ValueError("a value is numbered higher than there are values")
        tuples += instruction.name.startswith("TUPLE")
        if tuples > _MAX_TUPLES:
            raise ValueError("there are more tuples than the tensors of any model need")


def open_pytorch_file(path: Path) -> Weights:
    """Return the weights of a ``pytorch_model.bin`` by the names in the file."""
    if not zipfile.is_zipfile(path):
        with readable(str(path)), open(path, "rb") as stream:
            if stream.read(1) != _PICKLE:
                raise ValueError("it is no file of PyTorch")
        raise UserError(
            f"{path}: not a zip file, which PyTorch writes since 1.6; convert it where PyTorch is installed:"
            f" {_conversion_command(path)}"
        )
    with readable(str(path)), zipfile.ZipFile(path) as file:
        if sum(info.file_size for info in file.infolist()) > _MOST_COMPRESSED * path.stat().st_size:
            raise ValueError("it unpacks to many times its size, which weights do not")
        (entry,) = [name for name in file.namelist() if name == "data.pkl" or name.endswith("/data.pkl")]
        folder = entry[: -len("data.pkl")]
        order = file.read(f"{folder}byteorder").decode() if f"{folder}byteorder" in file.namelist() else "little"
        if file.getinfo(entry).file_size > _MAX_PICKLE_BYTES:
            raise ValueError(f"{entry} is larger than the tensors of any model need")
        try:
            content = _unpickled(file.read(entry))
        except _RefusedError as error:
            if str(error) == _QUANTIZED:
                raise UserError(f"{path}: {error}; name the weights before that") from error
            raise UserError(
                f"{path}: not read, because {error}; if you trust the file, whose code this runs, convert it where"
                f" PyTorch and its packages are installed: {_conversion_command(path, runs_code=True)}"
            ) from error
        if isinstance(content, dict) and isinstance(content.get("state_dict"), dict):
            content = content["state_dict"]
        if not isinstance(content, dict):
            raise ValueError("it contains no table of weights")
    tensors = {str(name): tensor for name, tensor in content.items() if isinstance(tensor, Tensor)}
    if not tensors:
        raise UserError(f"{path}: has no weights by name, but {listed(map(str, content))}; save the model's state_dict")
    return {name: _weight(path, folder, order, name, tensor) for name, tensor in tensors.items()}


def _weight(path: Path, folder: str, order: str, name: str, tensor: Tensor) -> Weight:
    def read() -> np.ndarray:
        with zipfile.ZipFile(path) as file:
            numbers = file.read(f"{folder}data/{tensor.storage.key}")
        dtype = _STORAGES[tensor.storage.type]
        strides = tuple(stride * dtype.itemsize for stride in tensor.strides)
        array: np.ndarray = np.ndarray(tensor.shape, dtype, numbers, tensor.offset * dtype.itemsize, strides)
        return array if order == sys.byteorder else array.byteswap()

    return Weight(tensor.shape, read, f"{path}: {name}")


def _conversion_command(path: Path, runs_code: bool = False) -> str:
    """Return a command that converts a file; if ``runs_code``, also one of a whole model, which is made by its code."""
    source, target = json.dumps(str(path)), json.dumps(str(path.with_name("model.safetensors")))
    code = (
        "import torch; from safetensors.torch import save_file; "
        f'w = torch.load({source}, map_location="cpu", weights_only={not runs_code}); '
        f"{'w = w if isinstance(w, dict) else w.state_dict(); ' if runs_code else ''}"
        f'save_file({{k: v.clone().contiguous() for k, v in w.items()}}, {target}, {{"format": "pt"}})'
    )
    return f"python -c {shlex.quote(code)}"
