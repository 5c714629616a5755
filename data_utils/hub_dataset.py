"""Loads data sets with the ``datasets`` library, if it is installed."""

from __future__ import annotations

from typing import Any, Optional

from utilities.errors import UserError


def hub_split(path: str, configuration: Optional[str], split: str, instead: str) -> Any:
    """Return a split of a data set of the hub, or of a local folder that the library understands.

    Args:
        path, configuration, split: arguments of ``datasets.load_dataset``, which returns the result.
        instead: the value of ``dataset_dir`` to suggest in error messages.

    Raises:
        UserError: the library is missing, or cannot get the data.
    """
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise UserError(
            f"dataset_dir is not set, and the datasets library, which could fetch {path}, is not installed;"
            f" set dataset_dir to {instead}, or: pip install -r requirements-datasets.txt"
        ) from error
    try:
        return load_dataset(path, configuration, split=split)
    except Exception as error:  # an error of the library, the network or a file format; in each case there is no data
        name = "/".join(part for part in (path, configuration) if part)
        reason = " ".join(str(error).split())[:300]
        raise UserError(
            f"the datasets library cannot get {name} ({type(error).__name__}: {reason}); set dataset_dir to {instead}"
        ) from error
