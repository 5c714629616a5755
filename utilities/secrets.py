"""Masks keys, tokens and passwords in texts and values before they are logged or shown.

A secret is recognised by its name (``WANDB_API_KEY``, ``--password``), by the format of its issuer (``hf_…``,
``ghp_…``, a JSON web token), or as the value of an environment variable of this process with such a name.
"""

from __future__ import annotations

import copy
import logging
import os
import re
from typing import Any, List, Mapping, Match

MASK = "***"

_NAMES = (
    r"(?:api|access|private|secret|auth|account|signing|encryption)[_-]?key|(?:client[_-]?)?secret|token|passw(?:or)?d"
)
_NAMES += r"|passphrase|credentials?|authorization|apikey|connection[_-]?string"
_SHORT_NAMES = r"pass|pwd|auth|dsn|cookie"  # whole words only: bypass is not secret
# Ends of secret names: auth_token is secret; total_tokens, tokenizer and max_tokens_per_batch are not.
_NAME = re.compile(rf"(?:^|[_\-.\s])(?:{_NAMES}|{_SHORT_NAMES})$", re.IGNORECASE)
_WORKING_FOLDER = "PWD"  # a shell's variable
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

_FORMS = re.compile(
    "|".join(
        (
            r"\bhf_[A-Za-z0-9]{20,}",  # Hugging Face
            r"\bwandb_v\d+_[A-Za-z0-9_]{20,}",  # Weights & Biases
            r"\bgh[pousr]_[A-Za-z0-9]{20,}",  # GitHub
            r"\bgithub_pat_[A-Za-z0-9_]{20,}",
            r"\bglpat-[A-Za-z0-9_-]{16,}",  # GitLab
            r"\bsk-[A-Za-z0-9_-]{20,}",  # OpenAI, Anthropic and others
            r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",  # Slack
            r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",  # Amazon
            r"\bAIza[A-Za-z0-9_-]{35}",  # Google
            r"\bya29\.[A-Za-z0-9_-]{20,}",
            r"\bnpm_[A-Za-z0-9]{30,}",
            r"\bpypi-[A-Za-z0-9_-]{40,}",
            r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",  # JSON web tokens, RFC 7519
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)",
        )
    )
)
# https://user:password@host, where the password may contain @, : and, as no port does, a slash; https://token@host;
# user:password@host without a scheme. The user git has no secret.
_IN_ADDRESS = re.compile(
    r"(?<=://)([^\s/:@\"']*):(?:[^\s/?#\"']*(?=@)|(?!\d+[/?#\s\"']|\d+$)[^\s\"']*(?=@))"
    r"|(?<=://)(?!git@)()[^\s/:@?#\"']+(?=@)"
    r"|(?<![\w.+:/@-])(?!mailto:)([\w.+-]+):(?!//)[^\s/\"']+(?=@[\w-]+[.:]\w)"
)
# Signatures and keys of addresses: ?X-Amz-Signature=…&sig=…
_IN_QUERY = re.compile(
    r"([?&;](?:x-(?:amz|goog|ms|oss)-[\w-]+|(?:[\w-]*[_-])?(?:signature|sig|key|keyid|token|policy|code|jwt|sas"
    rf"|{_SHORT_NAMES})|awsaccesskeyid|googleaccessid)=)[^\s&#;\"']+",
    re.IGNORECASE,
)
_BEARER = re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{8,}")
# NAME=value, --name value, "name": "value", ?name=value
_ASSIGNED = re.compile(
    rf"((?:(?:[A-Za-z0-9]+[_\-.])*(?:{_NAMES})|(?<![A-Za-z0-9])(?:{_SHORT_NAMES}))[\"']?(?:\s*=\s*|[\"']\s*:\s*)"
    rf"|--(?:[A-Za-z0-9]+[-._])*(?:{_NAMES}|{_SHORT_NAMES})\s+)"
    r"(\"[^\"]*\"|'[^']*'|[^\s\"'&;,]+)",
    re.IGNORECASE,
)
# Whole values: a W&B key of the older form, or a random text of letters and digits. Texts are not searched for these,
# because checksums and commits are public and look the same; nor is the value with the name of the commit.
_WHOLE = re.compile(
    r"[0-9a-f]{40}|(?=[A-Za-z0-9]*[a-z])(?=[A-Za-z0-9]*[A-Z])(?=(?:[A-Za-z]*\d){4})[A-Za-z0-9]{32,}={0,2}"
)
_COMMIT = "git_commit"  # in the description of the machine
_SHORTEST = 8  # characters; shorter values of environment variables are not masked

PYTHON_WARNINGS = "py.warnings"  # the logger of logging.captureWarnings


def is_secret_name(name: str) -> bool:
    return name != _WORKING_FOLDER and bool(_NAME.search(_CAMEL.sub("_", name)))


def mask(text: str) -> str:
    """Mask all secrets in a text.

    Example:
        >>> mask("run --api-key 123456 --steps 8 from https://me:pass@host/x")
        'run --api-key *** --steps 8 from https://me:***@host/x'
    """
    for value in _secret_values():
        text = text.replace(value, MASK)
    text = _FORMS.sub(MASK, text)
    text = _IN_ADDRESS.sub(_masked_address, text)
    text = _IN_QUERY.sub(rf"\1{MASK}", text)
    text = _BEARER.sub(rf"\1 {MASK}", text)
    return _ASSIGNED.sub(rf"\1{MASK}", text)


def _masked_address(match: Match[str]) -> str:
    user = match.group(1) if match.group(1) is not None else match.group(3)
    return MASK if user is None else f"{user}:{MASK}"


def mask_value(value: Any, name: str = "") -> Any:
    """Mask the secrets in a nested JSON value by its name, by the names of its keys, and like :func:`mask`."""
    if isinstance(value, Mapping):
        return {mask(str(key)): mask_value(item, str(key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [mask_value(item, name) for item in value]
    if not isinstance(value, str):
        return value
    is_key = name != _COMMIT and _WHOLE.fullmatch(value)
    return MASK if value and (is_secret_name(name) or is_key) else mask(value)


def shown_line(text: str) -> str:
    """Return a message as one printable line with its secrets masked."""
    line = " ".join(mask(text).split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in line)


class MaskingFormatter(logging.Formatter):
    """Formats log records, including tracebacks, with their secrets masked; a warning of Python's is one line.

    Bytes of a path that are not UTF-8 become question marks.
    """

    def __init__(self, form: str = "%(asctime)s %(levelname)s %(message)s") -> None:
        super().__init__(form)

    def format(self, record: logging.LogRecord) -> str:
        if record.name == PYTHON_WARNINGS:  # the second line repeats the line of code
            record = copy.copy(record)
            record.msg, record.args = shown_line(record.getMessage().split("\n")[0]), None
        return mask(super().format(record)).encode("utf-8", "replace").decode("utf-8")


def _secret_values() -> List[str]:
    """Return the values of secret environment variables, longest first, because one may contain another."""
    values = {value for name, value in os.environ.items() if len(value) >= _SHORTEST and is_secret_name(name)}
    return sorted(values, key=len, reverse=True)
