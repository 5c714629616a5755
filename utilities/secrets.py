"""Keys, tokens and passwords in texts and values, found and masked before anything is logged or shown.

Three ways to know one: the name it goes by (``WANDB_API_KEY``, ``--password``), the form that its issuer gives it
(``hf_…``, ``ghp_…``, a JSON web token), and the values of this process's own environment variables with such names.
"""

from __future__ import annotations

import logging
import os
import re
from typing import Any, List, Mapping, Optional

MASK = "***"

_NAMES = (
    r"(?:api|access|private|secret|auth|account|signing|encryption)[_-]?key|(?:client[_-]?)?secret|token|passw(?:or)?d"
)
_NAMES += r"|passphrase|credentials?|authorization"
# The last words of a name: auth_token is one, total_tokens, tokenizer and max_tokens_per_batch are none.
_NAME = re.compile(rf"(?:^|[_\-.\s])(?:{_NAMES})$", re.IGNORECASE)
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
_IN_ADDRESS = re.compile(r"(?<=://)([^\s/:@]*):([^\s/@]+)(?=@)")  # https://user:password@host
_BEARER = re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{8,}")
# NAME=value, --name value, "name": "value", ?name=value
_ASSIGNED = re.compile(
    rf"((?:[A-Za-z0-9]+[_\-.])*(?:{_NAMES})[\"']?(?:\s*=\s*|[\"']\s*:\s*)|--(?:[A-Za-z0-9]+[-.])*(?:{_NAMES})\s+)"
    r"(\"[^\"]*\"|'[^']*'|[^\s\"'&;,]+)",
    re.IGNORECASE,
)
# As a whole value: a W&B key of the older form, or a random text of letters and digits. Hexadecimal checksums and
# commits are public, so texts are not searched for these.
_WHOLE = re.compile(
    r"[0-9a-f]{40}|(?=[A-Za-z0-9]*[a-z])(?=[A-Za-z0-9]*[A-Z])(?=(?:[A-Za-z]*\d){4})[A-Za-z0-9]{32,}={0,2}"
)
_SHORTEST = 8  # characters of an environment variable's value that is searched for


def is_secret_name(name: str) -> bool:
    """Whether what goes by this name is to be kept secret.

    Example:
        >>> [is_secret_name(name) for name in ("WANDB_API_KEY", "totals.tokens", "hubToken")]
        [True, False, True]
    """
    return bool(_NAME.search(_CAMEL.sub("_", name)))


def mask(text: str, environment: Optional[Mapping[str, str]] = None) -> str:
    """The text with everything masked that is a secret by its name, its form or its presence in the environment.

    Args:
        environment: variables to know secrets from; None: those of this process.

    Example:
        >>> mask("run --api-key 123456 --steps 8 from https://me:pass@host/x")
        'run --api-key *** --steps 8 from https://me:***@host/x'
    """
    for value in _values_of(os.environ if environment is None else environment):
        text = text.replace(value, MASK)
    text = _FORMS.sub(MASK, text)
    text = _IN_ADDRESS.sub(rf"\1:{MASK}", text)
    text = _BEARER.sub(rf"\1 {MASK}", text)
    return _ASSIGNED.sub(rf"\1{MASK}", text)


def mask_value(value: Any, name: str = "") -> Any:
    """A JSON value with its secrets masked: nested, by the names of its keys, and as :func:`mask` does.

    Args:
        name: what the value goes by.
    """
    if isinstance(value, Mapping):
        return {mask(str(key)): mask_value(item, str(key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [mask_value(item, name) for item in value]
    if not isinstance(value, str):
        return value
    return MASK if value and (is_secret_name(name) or _WHOLE.fullmatch(value)) else mask(value)


def shown_line(text: str) -> str:
    """A message as one printable line without secrets, whatever names of keys and files it quotes."""
    line = " ".join(mask(text).split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in line)


class MaskingFormatter(logging.Formatter):
    """Formats log records, tracebacks included, without their secrets."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, masked."""
        return mask(super().format(record))


def _values_of(environment: Mapping[str, str]) -> List[str]:
    """Secret values, the longest first: one may hold another."""
    values = {value for name, value in environment.items() if len(value) >= _SHORTEST and is_secret_name(name)}
    return sorted(values, key=len, reverse=True)
