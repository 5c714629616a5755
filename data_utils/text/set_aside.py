"""Articles that cannot be used: set aside with title and reason, counted, and not too many of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from data_utils.records.writer import write_atomically
from utilities.errors import UserError

FILE_NAME = "set_aside.jsonl"
DEFAULT_LIMIT = 1000
LONGEST_REASON = 300  # characters


class SetAside(NamedTuple):
    """An article that could not be read, cleaned or split."""

    title: str
    reason: str


def reason_of(error: Exception) -> str:
    """An exception as one line."""
    text = " ".join(str(error).split()) or "no message"
    return f"{type(error).__name__}: {text}"[:LONGEST_REASON]


class SetAsides:
    """All that were set aside in a run, by the unit that they come from.

    Args:
        limit: more of them end the run.
        folder: where they are written down.
    """

    def __init__(self, limit: int, folder: Path):
        self.limit, self.folder = limit, folder
        self._by_unit: dict[int, list[SetAside]] = {}
        self.count = 0

    def add(self, unit: int, articles: Iterable[tuple[str, str] | list[str]]) -> None:
        """Takes those of a unit.

        Raises:
            UserError: they are too many; the list is written all the same.
        """
        found = [SetAside(*article) for article in articles]
        if found:
            self._by_unit[unit] = found
            self.count += len(found)
        if self.count > self.limit:
            self.write()
            raise UserError(
                f"{self.count:,} articles cannot be used, more than --max-bad-articles {self.limit} allows; the first:"
                f" {self.first()}; all of them: {self.folder / FILE_NAME}"
            )

    def note(self) -> str:
        """For behind a progress line."""
        return f", {self.count:,} set aside" if self.count else ""

    def first(self) -> str:
        """The first one, for a message; empty where there are none."""
        if not self._by_unit:
            return ""
        title, reason = self._by_unit[min(self._by_unit)][0]
        return f"{title!r}: {reason}" if title else reason

    def write(self) -> None:
        """Writes ``set_aside.jsonl`` in the order of the input; no file where there is nothing to tell."""
        lines = [
            json.dumps(article._asdict(), ensure_ascii=False) + "\n"
            for unit in sorted(self._by_unit)
            for article in self._by_unit[unit]
        ]
        if lines:
            write_atomically(self.folder / FILE_NAME, "".join(lines).encode())
        else:
            (self.folder / FILE_NAME).unlink(missing_ok=True)
