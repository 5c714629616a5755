"""Reads a MediaWiki XML dump (``pages-articles``), one page at a time.

A dump's text has its ``<`` escaped, so ``<page>`` and ``</page>`` can be found by a text search. Any part of the file
can therefore be read alone, and a broken page does not affect others.
Format: https://www.mediawiki.org/wiki/Help:Export, any version of the export schema.
"""

from __future__ import annotations

import codecs
import contextlib
import html
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple
from xml.etree import ElementTree

from data_utils.text.bzip2 import ends_properly, read_blocks
from data_utils.text.compressed import BZ2_MAGIC, decompression_errors, opened
from data_utils.text.documents import Document, RejectedDocument
from data_utils.text.units import Span, Streamed
from utilities.errors import UserError

ARTICLE_NAMESPACE = "0"
HIDDEN_NAMESPACE_KEYS = ("-2", "6", "14")  # media, files, categories, to which links show no text
PAGE_BEGIN, PAGE_END, DUMP_END = b"<page>", b"</page>", b"</mediawiki>"
READ_BYTES = 1 << 20
MAX_HEAD_BYTES = 1 << 20
TAIL_BYTES = 2 << 20  # contains at least two blocks of bz2

_ENCODING = re.compile(rb"""\s*<\?xml[^>]*\bencoding=["']([\w-]+)""")
_ROOT = re.compile(rb"(?:\s|<\?.*?\?>|<!.*?>)*<([^\s/>]+)", re.DOTALL)
_NAMESPACE_NAME = re.compile(rb'<namespace\b[^>]*\bkey="(-?\d+)"[^>]*>([^<]+)<')
_PAGE_NAMESPACE = re.compile(rb"<ns>\s*(-?\d+)\s*</ns>")
_TITLE = re.compile(rb"<title>(.*?)</title>", re.DOTALL)


class DumpHead(NamedTuple):
    """The properties of a dump that are read from its beginning."""

    is_splittable: bool  # whether parts can be read alone: true for UTF-8, plain or bz2
    hidden_namespaces: frozenset[str]  # this wiki's names of namespaces whose links show no text, lower case


class _DumpFile(NamedTuple):
    """An open dump."""

    raw: IO[bytes]  # the file on disk, whose position is the progress
    text: Any  # a binary file or similar object: the XML, decompressed, in UTF-8
    is_splittable: bool


def read_head(path: Path) -> DumpHead:
    """Read the beginning of a dump.

    Raises:
        UserError: The file is missing, empty, or not a MediaWiki dump.
    """
    if path.is_dir():
        raise UserError(f"{path}: a folder, not a dump; for WikiExtractor's folders use --wikiextractor")
    if not path.is_file():
        raise UserError(f"{path}: no such file; give the pages-articles XML dump, plain or .bz2")
    with _opened(path) as file:
        head = b""
        while PAGE_BEGIN not in head and len(head) < MAX_HEAD_BYTES and (block := file.text.read(1 << 14)):
            head += block
    root = _ROOT.match(head)
    if root is None:
        reason = "not well-formed XML" if head.strip() else "the file contains no XML"
        raise UserError(f"{path}: not a MediaWiki dump: {reason}")
    if root.group(1) != b"mediawiki":
        name = root.group(1).decode("utf-8", "replace")
        raise UserError(f"{path}: not a MediaWiki dump: it begins with <{name}>, not <mediawiki>")
    names = {
        key.decode(): html.unescape(name.decode("utf-8", "replace")).lower()
        for key, name in _NAMESPACE_NAME.findall(head)
    }
    return DumpHead(file.is_splittable, frozenset(names[key] for key in HIDDEN_NAMESPACE_KEYS if key in names))


def check_end(path: Path) -> None:
    """Reject a truncated dump before work begins; read only the end of a file whose parts can be read alone.

    Raises:
        UserError: The dump is damaged or truncated.
    """
    size = path.stat().st_size
    start = max(0, size - TAIL_BYTES)
    with open(path, "rb") as stream:
        is_bz2 = stream.read(len(BZ2_MAGIC)) == BZ2_MAGIC
        stream.seek(start)
        tail = stream.read()
    with decompression_errors(path):
        if is_bz2:
            if not ends_properly(tail):
                raise EOFError("it ends within a stream")
            tail = b"".join(block for _, block in read_blocks(path, start, size))
    if DUMP_END not in tail:
        raise _truncation_error(path)


def read_chunk(span: Span) -> Iterator[Document | RejectedDocument]:
    """Yield the articles whose page begins in a part of a dump; for bz2, in a block that begins in that part.

    Raises:
        UserError: The dump is damaged or truncated.
    """
    path, start, end = span
    with open(path, "rb") as stream:
        is_bz2 = stream.read(len(BZ2_MAGIC)) == BZ2_MAGIC
    chunks = read_blocks(path, start, end) if is_bz2 else _plain_chunks(path, start, end)
    with decompression_errors(path):
        for page in _pages(chunks, path):
            yield from parse_page(page)


def read_pages(path: Path) -> Iterator[Streamed]:
    """Yield the XML of all pages of any dump in order.

    Raises:
        UserError: The dump is damaged or truncated.
    """
    position = 0
    with _opened(path) as file:
        tail = b""

        def chunks() -> Iterator[tuple[bool, bytes]]:
            nonlocal tail
            while block := file.text.read(READ_BYTES):
                tail = tail[-len(DUMP_END) :] + block
                yield True, block

        for page in _pages(chunks(), path):
            before, position = position, file.raw.tell()
            yield Streamed(page, len(page), position - before)
    if DUMP_END not in tail:
        raise _truncation_error(path)


def parse_page(page: bytes) -> Iterator[Document | RejectedDocument]:
    """Yield the page as an article with its text in wiki markup, or as a rejected document if it is not valid XML.

    Redirects, pages of other namespaces, and pages without wiki text yield nothing.
    """
    head = page[: page.find(b"<revision>")]
    namespace = _PAGE_NAMESPACE.search(head)
    if b"<redirect" in head or (namespace and namespace.group(1) != ARTICLE_NAMESPACE.encode()):
        return
    try:
        element = ElementTree.fromstring(page)
    except ElementTree.ParseError as error:
        title = _TITLE.search(head)
        name = title.group(1).decode("utf-8", "replace") if title else ""
        yield RejectedDocument(html.unescape(name), f"not well-formed XML ({error})")
        return
    text = ""
    for revision in element.findall("revision"):  # the last one is the current one
        if revision.findtext("model", "wikitext") not in ("", "wikitext"):
            return
        text = revision.findtext("text") or ""
    if text and text.lstrip()[:9].upper() != "#REDIRECT":
        yield Document(element.findtext("title") or "", text)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[_DumpFile]:
    """Open a dump; its first bytes, not its name, determine how it is decompressed and decoded."""
    with open(path, "rb") as raw:
        magic = raw.read(len(BZ2_MAGIC))
    if magic[:2] in (b"PK", b"7z"):
        raise UserError(f"{path}: a zip or 7z archive; unpack it, or take the .bz2 dump")
    with opened(path) as (_, text):
        first = text.read(READ_BYTES)
    with opened(path) as (raw, text), _decoding_errors(path):
        if first[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            encoding = "utf-16"
        else:
            declared = _ENCODING.match(first.removeprefix(codecs.BOM_UTF8))
            encoding = declared.group(1).decode().lower() if declared else "utf-8"
        is_utf8 = encoding in ("utf-8", "us-ascii", "ascii")
        if not is_utf8:
            text = codecs.EncodedFile(text, "utf-8", encoding)
        elif first.startswith(codecs.BOM_UTF8):
            text.read(len(codecs.BOM_UTF8))
        yield _DumpFile(raw, text, is_utf8 and (text is raw or magic == BZ2_MAGIC))


@contextlib.contextmanager
def _decoding_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (UnicodeError, LookupError) as error:
        raise UserError(f"{path}: not in the encoding named on its first line ({error}); download it again") from error


def _plain_chunks(path: Path, start: int, end: int) -> Iterator[tuple[bool, bytes]]:
    with open(path, "rb") as stream:
        stream.seek(start)
        position = start
        while block := stream.read(min(READ_BYTES, end - position) if position < end else READ_BYTES):
            yield position < end, block
            position += len(block)


def _pages(chunks: Iterable[tuple[bool, bytes]], path: Path) -> Iterator[bytes]:
    """Yield the whole pages that begin in the caller's part of the file.

    Args:
        chunks: For each chunk, whether it is inside the part or comes after it, and its text.
        path: The file to name in errors.
    """
    text, own = b"", 0  # only pages that begin in text[:own] are the caller's
    for is_inside, chunk in chunks:
        text += chunk
        if is_inside:
            own = len(text)
        done = 0
        while True:
            begin = text.find(PAGE_BEGIN, done)
            if not 0 <= begin < own:
                if not is_inside:
                    return
                done = max(done, len(text) - len(PAGE_BEGIN))  # the tag may end in the next chunk
                break
            close = text.find(PAGE_END, begin)
            if close < 0:
                done = begin
                break
            done = close + len(PAGE_END)
            yield text[begin:done]
        text, own = text[done:], own - done
    if 0 <= text.find(PAGE_BEGIN) < own:
        raise _truncation_error(path)


def _truncation_error(path: Path) -> UserError:
    return UserError(
        f"{path}: not well-formed XML: it ends without {DUMP_END.decode()}; is the file a dump, and complete?"
    )
