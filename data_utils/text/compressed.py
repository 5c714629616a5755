"""Opens files that may be compressed with gzip, bz2, xz or zstd; their first bytes say so, not their names."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from utilities.errors import UserError

BZ2_MAGIC, GZIP_MAGIC, XZ_MAGIC, ZSTD_MAGIC = b"BZh", b"\x1f\x8b", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"
SUFFIXES = (".gz", ".bz2", ".xz", ".zst")


def _zstd(raw: IO[bytes]) -> Any:
    try:
        import pyarrow
    except ImportError as error:
        fix = "pip install pyarrow, or decompress it first"
        raise UserError(f"{raw.name}: compressed with zstd, which needs the package pyarrow; {fix}") from error
    return pyarrow.CompressedInputStream(raw, "zstd")


_READERS: dict[bytes, Callable[[Any], Any]] = {
    BZ2_MAGIC: bz2.BZ2File,  # also reads files of several streams
    GZIP_MAGIC: lambda raw: gzip.GzipFile(fileobj=raw),
    XZ_MAGIC: lzma.LZMAFile,
    ZSTD_MAGIC: _zstd,
}


def _magic(raw: IO[bytes]) -> bytes | None:
    """Return the first bytes by which a compressed file is known; None for any other file."""
    raw.seek(0)
    head = raw.read(max(map(len, _READERS)))
    raw.seek(0)
    return next(filter(head.startswith, _READERS), None)


def is_compressed(path: Path) -> bool:
    """Return whether a file is compressed."""
    with open(path, "rb") as raw:
        return _magic(raw) is not None


@contextlib.contextmanager
def decompression_errors(path: Path) -> Iterator[None]:
    """Report errors of decompression as the user's error.

    Raises:
        UserError: The file is damaged or cut off.
    """
    try:
        yield
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        raise UserError(f"{path}: cannot be decompressed ({error}); download it again") from error


@contextlib.contextmanager
def opened(path: Path) -> Iterator[tuple[IO[bytes], Any]]:
    """Open a file that may be compressed.

    Yields:
        The file on disk, whose position is the progress, and a binary file of its text, the same if not compressed.

    Raises:
        UserError: The file is damaged or cut off, or its compression needs a package that is not installed.
    """
    with open(path, "rb") as raw, decompression_errors(path):
        magic = _magic(raw)
        yield raw, raw if magic is None else _READERS[magic](raw)
