"""Articles of a stretch of a MediaWiki dump: any part can be read alone, and a broken page spoils no other.

In a dump, ``<page>`` and ``</page>`` stand nowhere but around pages, because text has its ``<`` escaped.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from data_utils.text.bzip2 import ends_properly, read_blocks
from data_utils.text.dump import ARTICLE_NAMESPACE, BZ2_MAGIC, Article, article_of
from data_utils.text.set_aside import SetAside
from utilities.errors import UserError

BEGIN, END, DUMP_END = b"<page>", b"</page>", b"</mediawiki>"
READ_BYTES = 1 << 20
END_BYTES = 2 << 20  # holds two blocks of bz2 at least
_NAMESPACE = re.compile(rb"<ns>\s*(-?\d+)\s*</ns>")
_TITLE = re.compile(rb"<title>(.*?)</title>", re.DOTALL)

Chunks = Iterator[tuple[bool, bytes]]  # whether it belongs to the stretch, or comes behind it


def read_stretch(path: Path, start: int, end: int) -> Iterator[Article | SetAside]:
    """Articles whose page begins in a stretch of a UTF-8 dump, plain or bz2.

    Args:
        path: the dump.
        start, end: bytes as they lie on disk; for bz2 the stretch is that of the blocks that begin there.

    Yields:
        Articles; pages that are no XML as set aside. Redirects and other namespaces are left out.

    Raises:
        UserError: the dump is damaged or cut off.
    """
    with open(path, "rb") as stream:
        is_bz2 = stream.read(3) == BZ2_MAGIC
    chunks = read_blocks(path, start, end) if is_bz2 else _plain(path, start, end)
    try:
        for page in _pages(chunks, path):
            article = _article(page)
            if article is not None:
                yield article
    except (EOFError, OSError) as error:
        raise UserError(f"{path}: cannot be decompressed ({error}); download it again") from error


def check_end(path: Path) -> None:
    """Refuses a dump that was cut off, before work begins on it; reads its end only.

    Raises:
        UserError: the dump is damaged or cut off.
    """
    size = path.stat().st_size
    start = max(0, size - END_BYTES)
    with open(path, "rb") as stream:
        is_bz2 = stream.read(3) == BZ2_MAGIC
        stream.seek(start)
        tail = stream.read()
    if is_bz2:
        if not ends_properly(tail):
            raise UserError(f"{path}: cannot be decompressed (it ends within a stream); download it again")
        try:
            tail = b"".join(block for _, block in read_blocks(path, start, size))
        except (EOFError, OSError) as error:
            raise UserError(f"{path}: cannot be decompressed ({error}); download it again") from error
    if DUMP_END not in tail:
        raise UserError(
            f"{path}: not well-formed XML: it ends without {DUMP_END.decode()}; is the file a dump, and complete?"
        )


def _plain(path: Path, start: int, end: int) -> Chunks:
    with open(path, "rb") as stream:
        stream.seek(start)
        position = start
        while block := stream.read(min(READ_BYTES, end - position) if position < end else READ_BYTES):
            yield position < end, block
            position += len(block)


def _pages(chunks: Chunks, path: Path) -> Iterator[bytes]:
    """Whole pages whose begin lies in chunks that belong to the stretch."""
    text, own = b"", 0  # pages may begin in text[:own]
    for belongs, chunk in chunks:
        text += chunk
        if belongs:
            own = len(text)
        done = 0
        while True:
            begin = text.find(BEGIN, done)
            if not 0 <= begin < own:
                if not belongs:
                    return
                done = max(done, len(text) - len(BEGIN))  # the tag may be cut here
                break
            close = text.find(END, begin)
            if close < 0:
                done = begin
                break
            done = close + len(END)
            yield text[begin:done]
        text, own = text[done:], own - done
    if 0 <= text.find(BEGIN) < own:
        raise UserError(f"{path}: not well-formed XML: it ends within a page; is the file a dump, and complete?")


def _article(page: bytes) -> Article | SetAside | None:
    head = page[: page.find(b"<revision>")]
    namespace = _NAMESPACE.search(head)
    if b"<redirect" in head or (namespace and namespace.group(1) != ARTICLE_NAMESPACE.encode()):
        return None
    try:
        return article_of(ElementTree.fromstring(page))
    except ElementTree.ParseError as error:
        title = _TITLE.search(head)
        name = title.group(1).decode("utf-8", "replace") if title else ""
        return SetAside(html.unescape(name), f"not well-formed XML ({error})")
