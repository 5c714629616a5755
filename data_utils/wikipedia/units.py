"""Work units of sentence files: cut at document ends, of about equal size, the same whatever the workers.

A unit becomes one TFRecord file, and is all that a worker holds in memory. Each has at least two documents
where the corpus has, because random segments come from another document of the same unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

DEFAULT_UNIT_MEGABYTES = 4.0
SMALLEST_UNIT = 128 << 10
FEWEST_UNITS = 8  # a small corpus is cut finer, so that all cores get work
SCAN_BYTES = 1 << 16
SEPARATOR = b"\n\n"


class Span(NamedTuple):
    """Bytes ``start`` to ``end`` of a sentence file."""

    path: Path
    start: int
    end: int


class Unit(NamedTuple):
    """Spans that are worked on together.

    Attributes:
        number: of the unit, from 0; with the seed it fixes all chance.
        spans: in order.
    """

    number: int
    spans: tuple[Span, ...]

    @property
    def size(self) -> int:
        """Bytes of text."""
        return sum(span.end - span.start for span in self.spans)

    def read_documents(self) -> list[list[str]]:
        """Documents as lists of sentences."""
        documents = []
        for span in self.spans:
            with open(span.path, "rb") as stream:
                stream.seek(span.start)
                text = stream.read(span.end - span.start).decode("utf-8")
            for block in text.replace("\r\n", "\n").split("\n\n"):
                sentences = [line for line in block.split("\n") if line.strip()]
                if sentences:
                    documents.append(sentences)
        return documents


def plan_units(files: Sequence[Path], unit_bytes: int | None = None) -> list[Unit]:
    """Cuts sentence files into units without reading them through.

    Args:
        files: in order.
        unit_bytes: about so much text in a unit; 4 MB by default, less for a corpus under 32 MB.
    """
    total = sum(path.stat().st_size for path in files)
    if unit_bytes is None:
        largest = int(DEFAULT_UNIT_MEGABYTES * 2**20)
        unit_bytes = min(largest, max(SMALLEST_UNIT, total // FEWEST_UNITS + 1))
    groups: list[list[Span]] = []
    lone = False  # whether the last group holds a single document and waits for company
    for path in files:
        with open(path, "rb") as stream:
            size, start = path.stat().st_size, 0
            while start < size:
                first_end = _document_end(stream, start, size)
                end = _document_end(stream, max(start + unit_bytes - len(SEPARATOR), first_end), size)
                single = first_end >= end
                if lone or (single and groups and end == size):
                    groups[-1].append(Span(path, start, end))
                    lone = False
                else:
                    groups.append([Span(path, start, end)])
                    lone = single
                start = end
    if lone and len(groups) > 1:
        groups[-2] += groups.pop()
    return [Unit(number, tuple(spans)) for number, spans in enumerate(groups)]


def _document_end(stream, position: int, size: int) -> int:
    """Behind the first blank line at or after a position, or the end of the file."""
    stream.seek(position)
    carried = b""
    while True:
        block = stream.read(SCAN_BYTES)
        if not block:
            return size
        found = (carried + block).find(SEPARATOR)
        if found >= 0:
            end = position - len(carried) + found + len(SEPARATOR)
            return min(end, size)
        position += len(block)
        carried = block[-1:]
