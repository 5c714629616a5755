"""Windows kept between runs, under a key of everything they depend on: of another text or size there is another file.

A file holds plain arrays, never pickled objects, and is written whole or not at all; a damaged one is made again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import uuid
import zipfile
from pathlib import Path
from typing import Any, Dict, Mapping, Optional

import numpy as np
import tokenizers

from data_utils.squad.examples import SquadSet
from data_utils.squad.windows import Geometry, Texts, Windows, make_windows
from data_utils.tokenizer import Vocabulary, load_tokenizer

logger = logging.getLogger(__name__)

FORMAT = 1  # to be raised when windows of the same key would differ
_KEY = "key"


def cached_windows(
    folder: Path, squad: SquadSet, vocabulary: Vocabulary, lower_case: bool, geometry: Geometry, labels: bool
) -> Windows:
    """The windows of a data set, from ``folder`` where they lie there, else made and put there.

    Args:
        folder: of cached windows; made if needed. One that cannot be written to is no error.
        squad, geometry, labels: see :func:`data_utils.squad.windows.make_windows`.
        vocabulary, lower_case: of the tokenizer.
    """
    key = {
        "format": FORMAT,
        "data": squad.sha256,
        "vocabulary": vocabulary.sha256,
        "lower_case": lower_case,
        "tokenizers": tokenizers.__version__,
        **geometry._asdict(),
        "labels": labels,
    }
    path = folder / f"squad-{hashlib.sha256(_encoded(key)).hexdigest()[:32]}.npz"
    windows = load(path, key)
    if windows is not None:
        logger.info("%s windows of %s from the cache %s", f"{windows.count:,}", squad.origin, path)
        return windows
    windows = make_windows(squad, load_tokenizer(str(vocabulary.path), lower_case), geometry, labels)
    try:
        save(path, key, windows)
        logger.info("%s windows of %s, cached in %s", f"{windows.count:,}", squad.origin, path)
    except OSError as error:
        logger.warning("%s windows of %s, not cached: %s: %s", f"{windows.count:,}", squad.origin, path, error.strerror)
    return windows


def save(path: Path, key: Mapping[str, Any], windows: Windows) -> None:
    """Writes windows and their key; nobody ever sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: Dict[str, np.ndarray] = {**windows.texts._asdict(), **windows._asdict()}
    del arrays["texts"]
    # A name of its own: two runs may make the same file at the same time.
    temporary = path.with_name(f"{path.stem}-{uuid.uuid4().hex}.tmp")
    try:
        with open(temporary, "wb") as stream:
            np.savez(stream, **{_KEY: np.frombuffer(_encoded(key), np.uint8)}, **arrays)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(str(temporary), str(path))
    finally:
        if temporary.exists():
            temporary.unlink()


def load(path: Path, key: Mapping[str, Any]) -> Optional[Windows]:
    """The windows that :func:`save` wrote; None where there are none, they are damaged, or the key is another."""
    try:
        with np.load(str(path), allow_pickle=False) as arrays:
            if arrays[_KEY].tobytes() != _encoded(key):
                raise ValueError("it holds another key")
            texts = Texts(*(arrays[name] for name in Texts._fields))
            return Windows(texts, *(arrays[name] for name in Windows._fields if name != "texts"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        logger.warning("cached windows are made again: %s cannot be used (%s)", path, error)
        return None


def _encoded(key: Mapping[str, Any]) -> bytes:
    return json.dumps(key, sort_keys=True).encode()
