"""Opens files that may be compressed with gzip, bz2, xz or zstd; their first bytes say so, not their names."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from utilities.errors import UserError

SUFFIXES = (".gz", ".bz2", ".xz", ".zst")
BUFFER_BYTES = 1 << 18


def _zstd(raw: IO[bytes]) -> Any:
    try:
        import pyarrow
    except ImportError as error:
        fix = "pip install pyarrow, or decompress it first"
        raise UserError(f"{raw.name}: compressed with zstd, which needs the package pyarrow; {fix}") from error
    return pyarrow.CompressedInputStream(raw, "zstd")


# By first bytes: the suffix of such a file's name, and what decompresses it.
_KINDS: dict[bytes, tuple[str, Callable[[Any], Any]]] = {
    b"\x1f\x8b": (".gz", lambda raw: gzip.GzipFile(fileobj=raw)),
    b"BZh": (".bz2", bz2.BZ2File),  # also reads files of several streams
    b"\xfd7zXZ\0": (".xz", lzma.LZMAFile),
    b"\x28\xb5\x2f\xfd": (".zst", _zstd),
}


def compression(path: Path) -> str:
    """Return the suffix that a compressed file should have; an empty one for any other file."""
    with open(path, "rb") as raw:
        head = raw.read(max(map(len, _KINDS)))
    return next((suffix for magic, (suffix, _) in _KINDS.items() if head.startswith(magic)), "")


@contextlib.contextmanager
def opened(path: Path) -> Iterator[tuple[IO[bytes], Any]]:
    """Open a file that may be compressed; yield it, for its position on disk, and a binary file of its text. Reading
    the latter raises a ``UserError`` if the file is damaged or cut off.
    """
    readers = dict(_KINDS.values())
    with open(path, "rb") as raw:
        suffix = compression(path)
        yield raw, io.BufferedReader(_Decompressed(path, readers[suffix](raw)), BUFFER_BYTES) if suffix else raw


class _Decompressed(io.RawIOBase):
    def __init__(self, path: Path, stream: Any):
        self._path, self._stream = path, stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            return self._stream.readinto(buffer)
        except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
            raise UserError(f"{self._path}: cannot be decompressed ({error}); download it again") from error
