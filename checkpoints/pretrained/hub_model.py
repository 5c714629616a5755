"""Fetches models of huggingface.co by name. No other module of this package uses the network."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import List

from checkpoints.pretrained.model_folder import CONFIG, HDF5, INDEX, LENGTH, MODULES, PROMPTS, PYTORCH, SAFETENSORS
from data_utils.tokenizer_files import TOKENIZER_FILES
from utilities.errors import UserError, one_line

TIMEOUT = 10.0  # seconds to wait for an answer
_MODULE_CONFIG = re.compile(r"\d+_\w+/config\.json")  # such as 1_Pooling/config.json, of sentence-transformers


def fetch(name: str, key: str) -> Path:
    """Return the folder of the files that a model needs, fetched or, if the network is down, from the cache."""
    import huggingface_hub
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError, RepositoryNotFoundError

    try:
        information = huggingface_hub.HfApi().model_info(name, timeout=TIMEOUT)
        names = [file.rfilename for file in information.siblings or []]
        weights = files_to_fetch(names)
        if not weights:
            raise UserError(f"{key}: the model {name} of huggingface.co has no weights that can be read; name another")
        described_by = (CONFIG, *TOKENIZER_FILES, MODULES, LENGTH, PROMPTS)
        of_modules = [name for name in names if MODULES in names and _MODULE_CONFIG.fullmatch(name)]
        files: List[str] = [*weights, *(name for name in described_by if name in names), *of_modules]
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=files, etag_timeout=TIMEOUT))
    except (HFValidationError, RepositoryNotFoundError) as error:
        raise UserError(
            f"{key}: {name} is neither a local folder nor a readable model on huggingface.co; correct the name"
        ) from error
    except OSError as error:  # anything may fail here, even by a full disk
        with contextlib.suppress(LocalEntryNotFoundError):
            folder = Path(huggingface_hub.snapshot_download(name, local_files_only=True))
            if files_to_fetch([path.name for path in folder.iterdir() if path.is_file()]):  # some may be missing
                return folder
        raise UserError(
            f"{key}: {name} is not a local folder and cannot be fetched from huggingface.co ({type(error).__name__}:"
            f" {one_line(error, 120)}); give a local folder, or fetch the model on a machine with a network"
        ) from error


def files_to_fetch(names: List[str]) -> List[str]:
    """Return, out of all files of a model, the one or several files of weights in the preferred format."""
    for file in (SAFETENSORS, PYTORCH, HDF5):
        stem, suffix = file.rsplit(".", 1)
        if file in names:
            return [file]
        if f"{file}{INDEX}" in names:
            parts = [name for name in names if name.startswith(f"{stem}-") and name.endswith(f".{suffix}")]
            return [*parts, f"{file}{INDEX}"]
    return []
