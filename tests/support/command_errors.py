"""Checks of the errors that commands print."""

from __future__ import annotations

import re
from typing import Any


def assert_refused(status: int | None, shown: Any, *words: str) -> None:
    """Check that a command ended with status 2 and one printable line of error with all words, besides its progress."""
    lines = [line for line in shown.err.splitlines() if line and not re.search(r"\[\d\d:\d\d", line)]  # but for bars
    assert status == 2, shown
    assert len(lines) == 1 and lines[0].startswith("error: ") and lines[0].isprintable(), shown.err
    for word in words:
        assert word in lines[0], f"{word!r} is not in {lines[0]!r}"
