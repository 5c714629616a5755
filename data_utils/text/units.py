"""Work units: parts of files, cut where a document ends, independently of the number of workers.

Input files are cut for extraction; any cut is valid, because the sentences are the same. The corpus of sentences
is divided as one text, regardless of its files, because each unit has its own random seed.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from data_utils.text.compressed import opened

DEFAULT_UNIT_BYTES = 4 << 20
SMALLEST_UNIT = 128 << 10
FEWEST_UNITS = 8  # a small corpus is cut into smaller units to give all cores work
SCAN_BYTES = 1 << 16
CHUNK_BYTES = 1 << 20
MAX_MATCH_BYTES = 1 << 12  # of a cut's pattern
DOCUMENT_END = re.compile(rb"\n\r?\n")


class Span(NamedTuple):
    """Bytes ``start`` up to ``end`` of a file."""

    path: Path
    start: int
    end: int


class Chunk(NamedTuple):
    """Decompressed text of a file, from byte ``start`` of its text on."""

    path: Path
    start: int
    data: bytes

    @property
    def end(self) -> int:
        return self.start + len(self.data)


class Streamed(NamedTuple):
    """A part of an input that can only be read from its beginning."""

    part: Any  # a chunk of text, a page of a dump, or a document
    length: int  # bytes in memory
    size: int  # bytes on disk that were read for it


class StreamedUnit(NamedTuple):
    """Parts of an input that can only be read from its beginning, in order."""

    number: int
    parts: list[Any]  # see ``Streamed``
    size: int  # bytes on disk that were read for them


class Unit(NamedTuple):
    """Parts of files that are processed together, in order."""

    number: int  # from 0; with the seed it determines everything random
    spans: tuple[Span, ...]

    @property
    def size(self) -> int:
        return sum(span.end - span.start for span in self.spans)

    def read(self) -> bytes:
        """Read the text; parts are separated by an empty line too."""
        parts = []
        for span in self.spans:
            with open(span.path, "rb") as stream:
                stream.seek(span.start)
                parts.append(stream.read(span.end - span.start))
        return b"\n\n".join(parts)


# (path, position, size of the file) → the first position from there on where the file may be cut, or its end.
Cut = Callable[[Path, int, int], int]


@dataclass(frozen=True)
class CutBehind:
    """Cuts after a match of a pattern; a match has at most ``MAX_MATCH_BYTES``."""

    pattern: re.Pattern[bytes]

    def __call__(self, path: Path, position: int, size: int) -> int:
        begin = max(0, position - MAX_MATCH_BYTES)
        with open(path, "rb") as stream:
            stream.seek(begin)
            window = b""
            while block := stream.read(SCAN_BYTES):
                window += block
                for match in self.pattern.finditer(window):
                    if begin + match.end() >= position:
                        return min(begin + match.end(), size)
                dropped = max(0, len(window) - MAX_MATCH_BYTES)
                begin, window = begin + dropped, window[dropped:]
        return size


def cut_anywhere(path: Path, position: int, size: int) -> int:
    """Cut anywhere, for formats whose readers find the first document of a part themselves."""
    return min(position, size)


def cut_nowhere(path: Path, position: int, size: int) -> int:
    """Never cut, for files that are one document."""
    return size


def plan_input_units(files: Sequence[Path], unit_bytes: int, cut: Cut) -> Iterator[Unit]:
    """Yield units of about ``unit_bytes`` by cutting large files and combining small ones."""
    number, spans, filled = 0, [], 0
    for path in files:
        size, start = path.stat().st_size, 0
        while start < size:
            end = cut(path, start + unit_bytes - filled, size)
            spans.append(Span(path, start, end))
            filled += end - start
            start = end
            if filled >= unit_bytes:
                yield Unit(number, tuple(spans))
                number, spans, filled = number + 1, [], 0
    if spans:
        yield Unit(number, tuple(spans))


def read_chunks(files: Sequence[Path], boundary: re.Pattern[bytes] | None) -> Iterator[Streamed]:
    """Yield the decompressed text of files in chunks of about a megabyte, each of whole documents.

    Args:
        files: Files that may be compressed.
        boundary: Pattern after which a file may be cut, of at most ``MAX_MATCH_BYTES``; None: each file is one chunk.

    Raises:
        UserError: A file is damaged or cut off.
    """
    for path in files:
        start, position, text = 0, 0, bytearray()
        with opened(path) as (raw, stream):
            while block := stream.read(CHUNK_BYTES):
                searched = max(0, len(text) - MAX_MATCH_BYTES)
                text += block
                if boundary and (match := boundary.search(text, searched)):
                    data, before, position = bytes(text[: match.end()]), position, raw.tell()
                    yield Streamed(Chunk(path, start, data), len(data), position - before)
                    start += len(data)
                    del text[: len(data)]
        if text:
            yield Streamed(Chunk(path, start, bytes(text)), len(text), path.stat().st_size - position)


def streamed_units(stream: Iterator[Streamed], unit_bytes: int) -> Iterator[StreamedUnit]:
    """Yield units of about ``unit_bytes`` in memory, and at least one."""
    number, parts, length, size = 0, [], 0, 0
    for part in stream:
        parts.append(part.part)
        length += part.length
        size += part.size
        if length >= unit_bytes:
            yield StreamedUnit(number, parts, size)
            number, parts, length, size = number + 1, [], 0, 0
    yield StreamedUnit(number, parts, size)


def plan_units(files: Sequence[Path], unit_bytes: int | None = None) -> list[Unit]:
    """Cut sentence files into units without reading all of them.

    The files count as one text, so units do not depend on how the documents are split into files. Each unit has at
    least two documents if the corpus does, because random segments come from another document of the same unit.

    Args:
        files: Sentence files, in order.
        unit_bytes: Approximate size of a unit; 4 MB by default, less for a corpus under 32 MB.
    """
    text = _Text(files)
    if unit_bytes is None:
        unit_bytes = min(DEFAULT_UNIT_BYTES, max(SMALLEST_UNIT, text.size // FEWEST_UNITS + 1))
    cuts = [0]
    is_single = False  # whether the last unit consists of a single document
    while cuts[-1] < text.size:
        first = text.document_end(cuts[-1] + 1)
        cuts.append(text.document_end(max(cuts[-1] + unit_bytes, first + 1)))
        is_single = cuts[-1] == first
    if is_single and len(cuts) > 2:
        del cuts[-2]
    return [Unit(number, text.spans(*bounds)) for number, bounds in enumerate(itertools.pairwise(cuts))]


class _Text:
    """Sentence files as one text."""

    def __init__(self, files: Sequence[Path]):
        self.files = [path for path in files if path.stat().st_size]
        self.begins = [0, *itertools.accumulate(path.stat().st_size for path in self.files)]
        self.size = self.begins[-1]
        self.cut = CutBehind(DOCUMENT_END)

    def document_end(self, position: int) -> int:
        """Return the first end of a document at or after a position; the end of a file also ends a document."""
        if position >= self.size:
            return self.size
        file = bisect.bisect_left(self.begins, position, 1) - 1
        begin, end = self.begins[file], self.begins[file + 1]
        return begin + self.cut(self.files[file], position - begin, end - begin)

    def spans(self, start: int, end: int) -> tuple[Span, ...]:
        """Return the parts of files between two positions."""
        file = bisect.bisect_right(self.begins, start) - 1
        spans = []
        while file < len(self.files) and self.begins[file] < end:
            begin, size = self.begins[file], self.begins[file + 1] - self.begins[file]
            spans.append(Span(self.files[file], max(start - begin, 0), min(end - begin, size)))
            file += 1
        return tuple(spans)
