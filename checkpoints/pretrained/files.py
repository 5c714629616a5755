"""Which file of a folder holds the weights, and how each kind of file is opened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional

from checkpoints.formats.hdf5 import open_hdf5
from checkpoints.formats.pytorch import open_pytorch
from checkpoints.formats.safetensors import has_tensorflow_names, open_safetensors
from checkpoints.pretrained.names import from_pytorch, from_tensorflow, renamed
from checkpoints.pretrained.weights import Weights, readable
from utilities.errors import UserError

INDEX = ".index.json"  # ends the name of the table of contents where weights are spread over several files


class Kind(NamedTuple):
    """A format of Hugging Face folders."""

    name: str
    suffixes: tuple
    open: Callable[[Path], Weights]


def _open_safetensors(path: Path) -> Weights:
    return renamed(open_safetensors(path), from_tensorflow if has_tensorflow_names(path) else from_pytorch)


def _open_pytorch(path: Path) -> Weights:
    return renamed(open_pytorch(path), from_pytorch)


def _open_hdf5(path: Path) -> Weights:
    return renamed(open_hdf5(path), from_tensorflow)


# In the order of preference where a folder has several.
KINDS = (
    Kind("model.safetensors", (".safetensors",), _open_safetensors),
    Kind("pytorch_model.bin", (".bin", ".pt", ".pth"), _open_pytorch),
    Kind("tf_model.h5", (".h5", ".hdf5"), _open_hdf5),
)


def weights_file(folder: Path) -> Optional[Path]:
    """The weights of a Hugging Face folder: one file, or the table of contents of several."""
    candidates = (folder / f"{kind.name}{ending}" for kind in KINDS for ending in ("", INDEX))
    return next((path for path in candidates if path.is_file()), None)


def chosen_files(names: List[str]) -> List[str]:
    """Of a model's files those to fetch: of the preferred format alone, whether in one file or several."""
    for kind in KINDS:
        stem, suffix = kind.name.rsplit(".", 1)
        if kind.name in names:
            return [kind.name]
        if f"{kind.name}{INDEX}" in names:
            return [name for name in names if name.startswith(f"{stem}-") and name.endswith(f".{suffix}")] + [
                f"{kind.name}{INDEX}"
            ]
    return []


def is_weights_file(path: Path) -> bool:
    """Whether the name is one of a format of Hugging Face's."""
    return path.name.endswith(INDEX) or _kind(path) is not None


def open_file(path: Path, key: str) -> Weights:
    """The weights of a file, or of all files of a table of contents, by PyTorch's names.

    Raises:
        UserError: something is missing or cannot be read; it names file and weight.
    """
    if path.name.endswith(INDEX):
        return _open_several(path, key)
    kind = _kind(path)
    assert kind is not None, path
    return kind.open(path)


def _kind(path: Path) -> Optional[Kind]:
    return next((kind for kind in KINDS if path.suffix in kind.suffixes), None)


def _open_several(index: Path, key: str) -> Weights:
    with readable(str(index)):
        places: Dict[str, str] = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        names = sorted(set(places.values()))
    weights: Weights = {}
    for name in names:
        path = index.parent / Path(name).name  # only ever beside the table of contents
        kind = _kind(path)
        if kind is None or not path.is_file():
            raise UserError(f"{key}: {path} is missing, which {index.name} names; get the whole folder")
        weights.update(kind.open(path))
    return weights
