"""Loads data sets with the ``datasets`` library, if it is installed."""

from __future__ import annotations

import contextlib
from typing import Any, Iterable, Iterator, Mapping, NamedTuple, Optional

from utilities.errors import UserError

INSTALL = "pip install -r requirements-datasets.txt"


class HubStream(NamedTuple):
    """A split of a data set; its rows are read in order, as often as it is iterated."""

    name: str
    rows: Iterable[Mapping[str, Any]]
    version: str  # the commit of the hub, or a digest of local files


def hub_split(path: str, configuration: Optional[str], split: str, instead: str) -> Any:
    """Return a split of a data set of the hub, or of a local folder that the library understands.

    In error messages, ``instead`` is suggested as ``dataset_dir``.
    """
    try:
        from datasets import load_dataset  # its name, because any folder ``datasets`` would be a module, too
    except ImportError as error:
        missing = f"dataset_dir is not set, and the datasets library, which could fetch {path}, is not installed"
        raise UserError(f"{missing}; set dataset_dir to {instead}, or: {INSTALL}") from error
    with reading_errors(_name(path, configuration), f"; set dataset_dir to {instead}"):
        return load_dataset(path, configuration, split=split)


def hub_stream(path: str, configuration: Optional[str], split: str) -> HubStream:
    """Return a split of a data set that is read while it is downloaded, if its format allows that."""
    try:
        from datasets import load_dataset_builder
    except ImportError as error:
        missing = "needs the datasets library, which is not installed"
        raise UserError(f"--hub-dataset {path}: {missing}: {INSTALL}") from error
    name = _name(path, configuration)
    with reading_errors(name):
        builder = load_dataset_builder(path, configuration)
        try:
            rows = builder.as_streaming_dataset(split=split)
        except NotImplementedError:  # an archive, for example, must be downloaded completely
            builder.download_and_prepare()
            rows = builder.as_dataset(split=split)
    return HubStream(name, rows, str(builder.hash))


@contextlib.contextmanager
def reading_errors(name: str, fix: str = "") -> Iterator[None]:
    """Report errors of the library, the network or a file format as the user's error; in each case there is no data."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"the datasets library cannot get {name} ({type(error).__name__}: {reason}){fix}") from error


def _name(path: str, configuration: Optional[str]) -> str:
    return "/".join(part for part in (path, configuration) if part)
