"""Opens files of weights: safetensors, PyTorch's, HDF5 and TensorFlow checkpoints; chooses the file in a folder."""

from __future__ import annotations

import glob
import json
from pathlib import Path
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

import h5py
import ml_dtypes  # noqa: F401 (teaches NumPy the number format bfloat16)
from safetensors import safe_open

from checkpoints.pretrained.model_folder import HDF5, INDEX, PYTORCH, SAFETENSORS
from checkpoints.pretrained.pytorch_file import open_pytorch_file
from checkpoints.pretrained.weights import Weight, Weights, from_pytorch, from_tensorflow, readable, renamed
from data_utils.tokenizer_files import VOCABULARY_NAME
from keras_extensions.backend import tf
from utilities.errors import UserError
from utilities.files import sha256

_KERAS_LAYER = "weight_names"  # attribute of an HDF5 group in which Keras saved a layer
VOCABULARY_DIGEST = "vocab_txt_sha256"  # in the metadata of an exported model.safetensors


class Format(NamedTuple):
    """A format of Hugging Face folders."""

    name: str  # of the file in a folder
    suffixes: Tuple[str, ...]
    open: Callable[[Path], Weights]  # function that returns the weights by PyTorch's names


_EIGHT_BITS = "F8_"  # beginning of the names of safetensors' formats of 8 bits, which NumPy lacks


def _open_safetensors(path: Path) -> Weights:
    def weight(file: Any, name: str) -> Weight:
        kind, shape = file.get_slice(name).get_dtype(), tuple(file.get_slice(name).get_shape())

        def read() -> Any:
            if kind.startswith(_EIGHT_BITS):
                raise UserError(f"{path}: {name}: is quantized ({kind}); name the weights before that")
            with safe_open(str(path), framework="numpy") as opened:
                return opened.get_tensor(name)

        return Weight(shape, read, f"{path}: {name}")

    with readable(str(path)), safe_open(str(path), framework="numpy") as file:
        weights = {name: weight(file, name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        metadata = file.metadata() or {}
    _check_vocabulary(path, metadata.get(VOCABULARY_DIGEST))
    written_by_tensorflow = metadata.get("format") == "tf"  # PyTorch writes "pt"
    return renamed(weights, from_tensorflow if written_by_tensorflow else from_pytorch)


def _check_vocabulary(weights: Path, recorded: Optional[str]) -> None:
    """Compare the ``vocab.txt`` next to weights with the SHA-256 in their metadata, if both exist."""
    vocabulary = weights.with_name(VOCABULARY_NAME)
    if recorded is not None and vocabulary.is_file() and sha256(vocabulary) != recorded:
        raise UserError(
            f"{vocabulary}: its SHA-256 is not the one in {weights}, so it is not the vocabulary of these weights;"
            " restore it, or export the model again"
        )


def _open_pytorch(path: Path) -> Weights:
    return renamed(open_pytorch_file(path), from_pytorch)


def _open_hdf5(path: Path) -> Weights:
    """Open a ``tf_model.h5``: variables by name, in a group for each layer if the model is in one file."""
    weights: Weights = {}

    def visit(name: str, item: Any) -> None:
        if not isinstance(item, h5py.Dataset):
            return

        def read() -> Any:
            with h5py.File(path, "r") as file:
                return file[name][()]

        layer, _, rest = name.partition("/")
        variable = rest if _KERAS_LAYER in item.file[layer].attrs else name
        weights[variable] = Weight(tuple(item.shape), read, f"{path}: {name}")

    with readable(str(path)), h5py.File(path, "r") as file:
        file.visititems(visit)
    return renamed(weights, from_tensorflow)


# In the order of preference if a folder has several.
FORMATS = (
    Format(SAFETENSORS, (".safetensors",), _open_safetensors),
    Format(PYTORCH, (".bin", ".pt", ".pth"), _open_pytorch),
    Format(HDF5, (".h5", ".hdf5"), _open_hdf5),
)


def find_weights_file(folder: Path) -> Optional[Path]:
    """Return the weights of a Hugging Face folder: one file, or the index of several; None if there are none."""
    candidates = (folder / f"{format.name}{ending}" for format in FORMATS for ending in ("", INDEX))
    return next((path for path in candidates if path.is_file()), None)


def is_weights_file(path: Path) -> bool:
    """Return whether a file is, by its name, in one of Hugging Face's formats."""
    return path.name.endswith(INDEX) or _find_format(path) is not None


def open_weights_file(path: Path, key: str) -> Weights:
    """Open a file, or all files of an index, as weights by PyTorch's names; see :func:`is_weights_file`."""
    if not path.name.endswith(INDEX):
        return _open_file(path)
    with readable(str(path)):
        file_of_weight: Dict[str, str] = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        names = sorted({Path(name).name for name in file_of_weight.values()})  # files must not be in other folders
    weights: Weights = {}
    for name in names:
        part = path.parent / name
        if _find_format(part) is None or not part.is_file():
            raise UserError(f"{key}: {part} is missing, which {path.name} names; get the whole folder")
        weights.update(_open_file(part))
    return weights


def _open_file(path: Path) -> Weights:
    """Open a file, or refuse what a download has left in its place."""
    with readable(str(path)), open(path, "rb") as file:
        head = file.read(200).lstrip().lower()
    if head.startswith((b"<!doctype", b"<html", b"<?xml")):
        raise UserError(f"{path}: is a web page, not a file of weights; download the file itself")
    if head.startswith(b"version https://git-lfs"):
        raise UserError(f"{path}: is a pointer of Git LFS, not the file itself; get it with git lfs pull")
    format = _find_format(path)
    assert format is not None, path
    return format.open(path)


def _find_format(path: Path) -> Optional[Format]:
    return next((format for format in FORMATS if path.suffix in format.suffixes), None)


def open_tensorflow(prefix: Path) -> Tuple[Weights, Weights]:
    """Return the floating-point and the integer arrays of a TensorFlow checkpoint by variable name or object path."""
    _refuse_missing_shards(prefix)
    with readable(str(prefix)):
        reader = tf.train.load_checkpoint(str(prefix))
        shapes = reader.get_variable_to_shape_map()
        types = reader.get_variable_to_dtype_map()

    def weight(name: str) -> Weight:
        return Weight(tuple(shapes[name]), lambda: reader.get_tensor(name), f"{prefix}: {name}")

    floats = {name: weight(name) for name in sorted(shapes) if types[name].is_floating}
    return floats, {name: weight(name) for name in sorted(shapes) if types[name].is_integer}


def _refuse_missing_shards(prefix: Path) -> None:
    """Refuse a TensorFlow checkpoint without one of its files of data, which is noticed late otherwise."""
    found = sorted(path.name for path in prefix.parent.glob(f"{glob.escape(prefix.name)}.data-*-of-*"))
    count = int(found[0].rpartition("-")[2]) if found and found[0].rpartition("-")[2].isdigit() else 1
    missing = {f"{prefix.name}.data-{number:05d}-of-{count:05d}" for number in range(count)} - set(found)
    if missing:
        raise UserError(f"{prefix.parent / min(missing)}: is missing; {prefix.name}.index needs it, copy it there")
