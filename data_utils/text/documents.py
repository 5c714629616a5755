"""Documents, and the list of those that cannot be used."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from utilities.errors import UserError
from utilities.files import write_atomically

REJECTED_NAME = "set_aside.jsonl"  # the name that earlier versions gave it
DEFAULT_MAX_REJECTED = 1000
MAX_REASON_CHARACTERS = 300


class Document(NamedTuple):
    """One document: a title, which may be empty, and its text with paragraphs on lines of their own."""

    title: str
    text: str


class RejectedDocument(NamedTuple):
    """A document that could not be read or split into sentences, and the reason."""

    title: str
    reason: str


class RejectedDocuments:
    """All rejected documents of a run, by shard; ``folder/set_aside.jsonl`` lists them.

    More than ``limit`` end the run.
    """

    def __init__(self, limit: int, folder: Path):
        self.limit, self.folder = limit, folder
        self._by_shard: dict[int, list[RejectedDocument]] = {}
        self.count = 0

    def add(self, shard: int, documents: Iterable[tuple[str, str] | list[str]]) -> None:
        """Add the rejected documents of a shard.

        Raises:
            UserError: There are too many; the list is written in any case.
        """
        rejected = [RejectedDocument(*document) for document in documents]
        if rejected:
            self._by_shard[shard] = rejected
            self.count += len(rejected)
        if self.count > self.limit:
            self.write()
            raise UserError(
                f"{self.count:,} documents cannot be used, more than --max-bad-articles {self.limit} allows; the first:"
                f" {self.first()}; all of them: {self.folder / REJECTED_NAME}"
            )

    def note(self) -> str:
        return f", {self.count:,} rejected" if self.count else ""

    def first(self) -> str:
        """Describe the first document for a message; return an empty text if there is none."""
        if not self._by_shard:
            return ""
        title, reason = self._by_shard[min(self._by_shard)][0]
        return f"{title!r}: {reason}" if title else reason

    def write(self) -> None:
        """Write ``set_aside.jsonl`` in the order of the input, unless it would be empty."""
        path = self.folder / REJECTED_NAME
        documents = [document for shard in sorted(self._by_shard) for document in self._by_shard[shard]]
        if documents:
            lines = [json.dumps(document._asdict(), ensure_ascii=False) + "\n" for document in documents]
            write_atomically(path, "".join(lines).encode())
        else:
            path.unlink(missing_ok=True)


def describe_error(error: Exception) -> str:
    """Describe an exception in one line."""
    text = " ".join(str(error).split()) or "no message"
    return f"{type(error).__name__}: {text}"[:MAX_REASON_CHARACTERS]
