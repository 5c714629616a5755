"""Reading a MediaWiki XML dump (``pages-articles``), one page at a time.

Format: https://www.mediawiki.org/wiki/Help:Export, any version of the export schema.
"""

from __future__ import annotations

import bz2
import gzip
import os
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple
from xml.etree import ElementTree

from utilities.errors import UserError

ARTICLE_NAMESPACE = "0"
READ_BYTES = 1 << 18
HEAD_BYTES = 4096
BZ2_MAGIC, GZIP_MAGIC = b"BZh", b"\x1f\x8b"

_ENCODING = re.compile(rb"""(?:\xef\xbb\xbf)?\s*<\?xml[^>]*encoding=["']([\w-]+)""")


class Article(NamedTuple):
    """A page of the main namespace: its title, and its text in wiki markup."""

    title: str
    wikitext: str


class _Counting:
    """A binary file that reports how many bytes were read; lets progress follow the compressed size."""

    def __init__(self, stream: BinaryIO, on_bytes: Callable[[int], None] | None):
        self.stream, self.on_bytes = stream, on_bytes

    def read(self, size: int = -1) -> bytes:
        data = self.stream.read(size)
        if self.on_bytes is not None:
            self.on_bytes(len(data))
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        return self.stream.seek(offset, whence)

    def tell(self) -> int:
        return self.stream.tell()

    def seekable(self) -> bool:
        return self.stream.seekable()

    def readable(self) -> bool:
        return True


def _decompressed(path: Path, raw: BinaryIO, counted: _Counting) -> BinaryIO:
    """The plain bytes of a file, whatever its name: the first bytes say how it is compressed."""
    magic = raw.read(3)
    raw.seek(0)
    if magic == BZ2_MAGIC:
        return bz2.BZ2File(counted)  # reads dumps of several streams (multistream) too
    if magic[:2] == GZIP_MAGIC:
        return gzip.GzipFile(fileobj=counted)
    if magic[:2] in (b"PK", b"7z"):
        raise UserError(f"{path}: a zip or 7z archive; unpack it, or take the .bz2 dump")
    return counted


def read_articles(path: str | os.PathLike, on_bytes: Callable[[int], None] | None = None) -> Iterator[Article]:
    """Articles of a dump in file order; redirects and other namespaces are left out.

    Holds one page in memory. UTF-8 and UTF-16, plain, bz2 and gzip are told by their content.

    Args:
        path: the dump.
        on_bytes: called with the number of bytes (as on disk) of each read, for progress.

    Raises:
        UserError: the file is missing, empty, cut short, or not a MediaWiki dump.
    """
    for element in _elements(Path(path), on_bytes):
        if _name(element) == "page":
            article = article_of(element)
            if article is not None:
                yield article


def read_namespaces(path: str | os.PathLike) -> dict[str, str]:
    """Names of the wiki's namespaces, lower case, by key (``6`` files, ``14`` categories, ``-2`` media).

    Reads no further than the head of the dump; one without ``<siteinfo>`` gives an empty table.
    """
    names: dict[str, str] = {}
    for element in _elements(Path(path), None):
        if _name(element) == "siteinfo":
            for entry in element.iter():
                if _name(entry) == "namespace" and entry.text:
                    names[entry.get("key", "")] = entry.text.lower()
        break
    return names


def can_be_cut(path: Path) -> bool:
    """Whether parts of the dump can be read alone: UTF-8, plain or bz2. UTF-16 and gzip are read from the begin."""
    with open(path, "rb") as raw:
        stream = _decompressed(path, raw, _Counting(raw, None))
        head = stream.read(HEAD_BYTES)
    encoding = _ENCODING.match(head)
    is_utf8 = encoding is None or encoding.group(1).lower() in (b"utf-8", b"us-ascii", b"ascii")
    return is_utf8 and b"<mediawiki" in head and not isinstance(stream, gzip.GzipFile)


def _elements(path: Path, on_bytes: Callable[[int], None] | None) -> Iterator[ElementTree.Element]:
    """The children of <mediawiki>, one at a time, each forgotten before the next."""
    if path.is_dir():
        raise UserError(f"{path}: a folder, not a dump; for WikiExtractor's folders use --wikiextractor")
    if not path.is_file():
        raise UserError(f"{path}: no such file; give the pages-articles XML dump, plain or .bz2")
    with open(path, "rb") as raw:
        stream = _decompressed(path, raw, _Counting(raw, on_bytes))
        try:
            yield from _parsed(path, stream)
        except ElementTree.ParseError as error:
            raise UserError(f"{path}: not well-formed XML ({error}); is the file a dump, and complete?") from error
        except (EOFError, OSError, zlib.error) as error:
            raise UserError(f"{path}: cannot be decompressed ({error}); download it again") from error


def _parsed(path: Path, stream: BinaryIO) -> Iterator[ElementTree.Element]:
    parser = ElementTree.XMLPullParser(events=("start", "end"))
    root, depth = None, 0
    while True:
        data = stream.read(READ_BYTES)
        if data:
            parser.feed(data)
        elif root is None:
            raise UserError(f"{path}: not a MediaWiki dump: the file holds no XML")
        else:
            parser.close()
        for event, element in parser.read_events():
            depth += 1 if event == "start" else -1
            if root is None:
                root = element
                if _name(element) != "mediawiki":
                    raise UserError(f"{path}: not a MediaWiki dump: it begins with <{_name(element)}>, not <mediawiki>")
            elif event == "end" and depth == 1:
                yield element
                root.remove(element)  # or the tree would grow to the size of the dump
        if not data:
            return


def _name(element: ElementTree.Element) -> str:
    """Tag without the schema's namespace, which differs from version to version."""
    return element.tag.rpartition("}")[2]


def article_of(page: ElementTree.Element) -> Article | None:
    """The page as an article, or None for a redirect, another namespace, or a page without wiki text."""
    title = text = ""
    for part in page:
        name = _name(part)
        if name == "redirect" or (name == "ns" and (part.text or "").strip() != ARTICLE_NAMESPACE):
            return None
        if name == "title":
            title = part.text or ""
        elif name == "revision":
            for entry in part:
                if _name(entry) == "text":
                    text = entry.text or ""  # the last revision of a page is the current one
                elif _name(entry) == "model" and (entry.text or "wikitext") != "wikitext":
                    return None
    if not text or text.lstrip()[:9].upper() == "#REDIRECT":
        return None
    return Article(title, text)
