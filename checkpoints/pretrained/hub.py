"""Models of huggingface.co by name: into the local cache, or from it where the network is not to be had."""

from __future__ import annotations

import re
from pathlib import Path
from typing import List

from checkpoints.pretrained.files import chosen_files
from checkpoints.pretrained.settings import CONFIG, TOKENIZER_CONFIG, VOCABULARY
from utilities.errors import UserError

TIMEOUT = 10.0  # seconds to wait for an answer
_NAME = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*")


def is_model_name(text: str) -> bool:
    """Whether ``text`` may be a model's name, ``bert-base-uncased`` or ``someone/some-bert``."""
    return _NAME.fullmatch(text) is not None


def fetch(name: str, key: str) -> Path:
    """The folder of a model, fetched unless the cache has it; only the files that are needed.

    Raises:
        UserError: there is no such model or the site is out of reach, and the cache does not have it.
    """
    import huggingface_hub
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        information = huggingface_hub.HfApi().model_info(name, timeout=TIMEOUT)
        files = wanted([file.rfilename for file in information.siblings or []])
        if not files:
            raise UserError(f"{key}: the model {name} of huggingface.co has no weights that can be read; name another")
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=files, etag_timeout=TIMEOUT))
    except RepositoryNotFoundError as error:
        raise UserError(
            f"{key}: {name} is neither a folder here nor a model on huggingface.co that may be read; correct the name"
        ) from error
    except OSError as error:  # all that goes wrong on the way, a full disk included
        return _cached(name, key, error)


def wanted(names: List[str]) -> List[str]:
    """Of a model's files those that are needed; none if it has no weights."""
    weights = chosen_files(names)
    return weights and [*weights, *(name for name in (CONFIG, VOCABULARY, TOKENIZER_CONFIG) if name in names)]


def _cached(name: str, key: str, problem: OSError) -> Path:
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(huggingface_hub.snapshot_download(name, local_files_only=True))
    except LocalEntryNotFoundError:
        reason = " ".join(str(problem).split())[:120]
        raise UserError(
            f"{key}: {name} is no folder here, and it cannot be fetched from huggingface.co ({type(problem).__name__}:"
            f" {reason}); give a local folder, or fetch the model where there is a network"
        ) from problem
