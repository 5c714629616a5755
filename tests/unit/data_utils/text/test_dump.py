"""Reading dumps: encodings, compression, parts and the whole, skipped pages, broken pages and broken files.

bz2 that is decompressed from any position equals the standard library's result for the whole file.
"""

from __future__ import annotations

import bz2
import gzip
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from data_utils.text.bzip2 import ends_properly, read_blocks
from data_utils.text.units import StreamedUnit

from data_utils.text import bzip2, sources
from data_utils.text.documents import RejectedDocument
from data_utils.text.dump import read_head
from data_utils.text.sources import dump_source
from tests.support.real_data import real_data
from tests.support.wiki_dumps import HEAD, page
from utilities.errors import UserError

DUMP = (
    HEAD
    + page("Cat", "A &lt;b&gt;cat&lt;/b&gt; &amp;amp; a dog.")
    + page("Old name", "#REDIRECT [[Cat]]", extra='<redirect title="Cat" />')
    + page("Older name", " #redirect [[Cat]]")
    + page("Talk:Cat", "Talk.", namespace=1)
    + page("Data", "{}", model="json")
    + page("Äpfel 苹果", "Rot.")
    + page("Empty", "")
    + "</mediawiki>"
)
ARTICLES = [("Cat", "A <b>cat</b> &amp; a dog."), ("Äpfel 苹果", "Rot.")]
LONG = (
    HEAD + "".join(page(f"Page {n}", f"Text of page {n}, äöü 苹果. " * (n % 40)) for n in range(400)) + "</mediawiki>"
)


def articles(path: Path) -> list[tuple[str, str]]:
    return [tuple(article) for article in dump_source(path).read()]


def unit_sizes(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(sources, "SMALLEST_UNIT", size)
    monkeypatch.setattr(sources, "LARGEST_UNIT", size)


@pytest.mark.parametrize("unit_bytes", [10, 10**6])
@pytest.mark.parametrize(
    "encode",
    [
        lambda text: text.encode(),
        lambda text: b"\xef\xbb\xbf" + text.encode(),
        lambda text: bz2.compress(text.encode()),
        lambda text: bz2.compress(text[:300].encode()) + bz2.compress(text[300:].encode()),
        lambda text: gzip.compress(text.encode()),
        lambda text: text.encode("utf-16"),
        lambda text: bz2.compress(text.encode("utf-16")),
        lambda text: b'<?xml version="1.0" encoding="gb18030"?>' + text.encode("gb18030"),
    ],
    ids=["plain", "byte order mark", "bz2", "bz2 multistream", "gzip", "utf-16", "utf-16 bz2", "declared"],
)
def test_articles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encode: Callable[[str], bytes], unit_bytes: int
) -> None:
    path = tmp_path / "dump"
    path.write_bytes(encode(DUMP))
    unit_sizes(monkeypatch, unit_bytes)
    assert articles(path) == ARTICLES
    source = dump_source(path)
    if isinstance(next(source.units()), StreamedUnit):
        assert 0 < sum(unit.size for unit in source.units()) <= source.total_bytes


@pytest.mark.parametrize("size", [97, 1_000, 50_000, 10**7])
@pytest.mark.parametrize("compressed", [False, True])
def test_each_article_is_in_one_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, compressed: bool
) -> None:
    path = tmp_path / "dump.xml"
    path.write_bytes(bz2.compress(LONG.encode()) if compressed else LONG.encode())
    unit_sizes(monkeypatch, size)
    expected = [(f"Page {n}", f"Text of page {n}, äöü 苹果. " * (n % 40)) for n in range(400) if n % 40]
    assert articles(path) == expected


def test_real_dumps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = real_data("wikipedia_dump", "enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2")
    zipped = tmp_path / "dump.gz"
    zipped.write_bytes(gzip.compress(bz2.decompress(path.read_bytes()), 1))
    unit_sizes(monkeypatch, 200_000)
    result = articles(path)
    assert len(result) == 106  # 206 pages, 100 of them redirects
    assert result[0][0] == "Anarchism"
    assert result == articles(zipped)
    bulgarian = dump_source(real_data("wikipedia_dump", "bgwiki-latest-pages-articles-shortened.xml.bz2"))
    assert any("България" in document.text for document in bulgarian.read())
    assert "файл" in bulgarian.hidden_namespaces


def test_names_of_hidden_namespaces(tmp_path: Path) -> None:
    names = '<namespace key="6" case="x">Datei</namespace><namespace case="x" key="14">A &amp; B</namespace>'
    path = tmp_path / "dump.xml"
    path.write_text(DUMP.replace("</siteinfo>", f"<namespaces>{names}</namespaces></siteinfo>"))
    assert read_head(path).hidden_namespaces == {"datei", "a & b"}
    path.write_text(DUMP)
    assert not read_head(path).hidden_namespaces


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_broken_page_is_rejected_and_the_others_are_read(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "dump.xml"
    pages = [page("A", "a~b"), page("D", "Last.")]
    path.write_bytes((HEAD + "".join(pages) + "</mediawiki>").encode().replace(b"~", b"\xff"))
    broken, last = dump_source(path).read()
    assert isinstance(broken, RejectedDocument) and (broken.title, last.title) == ("A", "D")
    pages = [page("A", "First."), page("B &amp; C", "Un & closed <b"), page("D", "Last.")]
    path.write_bytes((HEAD + "".join(pages) + "</mediawiki>").encode(encoding))
    first, broken, last = dump_source(path).read()
    assert (first.title, last.title) == ("A", "D")
    assert isinstance(broken, RejectedDocument)
    assert broken.title == "B & C"
    assert "not well-formed XML" in broken.reason


@pytest.mark.parametrize(
    ("data", "message", "at_end"),
    [
        (b"", "no XML", False),
        (b"Just some text.", "not well-formed XML", False),
        (b"<html><body/></html>", "begins with <html>", False),
        (b"PK\x03\x04zip", "zip", False),
        (b"BZh9 this is no bz2", "cannot be decompressed", False),
        (bz2.compress(DUMP.encode())[:-20], "cannot be decompressed", False),
        (bz2.compress(LONG.encode())[:-20], "cannot be decompressed", False),
        (bz2.compress(LONG.encode()[:-300]), "complete", False),
        (DUMP[:-30].encode(), "complete", False),
        (LONG.encode()[:-5], "without </mediawiki>", False),
        (gzip.compress(LONG.encode())[:-2000], "cannot be decompressed", True),
        (gzip.compress(LONG.encode()[:-5]), "without </mediawiki>", True),
        (LONG.encode("utf-16")[:-400], "complete", True),
    ],
)
def test_a_broken_dump_is_refused(tmp_path: Path, data: bytes, message: str, at_end: bool) -> None:
    """Dumps that are read in parts are refused before any work, the others at their end."""
    path = tmp_path / "dump.xml"
    with pytest.raises(UserError, match="no such file"):
        dump_source(path)
    path.write_bytes(data)
    with pytest.raises(UserError, match=message) as caught:
        articles(path) if at_end else dump_source(path)
    assert str(path) in str(caught.value)
    with pytest.raises(UserError, match="--wikiextractor"):
        dump_source(tmp_path)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_memory_does_not_grow_with_the_dump(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "dump.xml"
    with open(path, "w", encoding=encoding) as stream:
        stream.write(HEAD)
        for number in range(3000):
            stream.write(page(f"Page {number}", "Some words of text here. " * 400))
        stream.write("</mediawiki>")
    assert path.stat().st_size > 25e6
    tracemalloc.start()
    count = sum(1 for _ in dump_source(path).read())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 3000
    assert peak < 12e6


def in_parts(path: Path, part: int) -> bytes:
    """Return the file's content, with each part decompressed on its own."""
    blocks = []
    for start in range(0, path.stat().st_size, part):
        for starts_in_part, block in read_blocks(path, start, start + part):
            if not starts_in_part:
                break
            blocks.append(block)
    return b"".join(blocks)


def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


@pytest.mark.parametrize(
    "make",
    [
        lambda: bz2.compress(noise(1_000_000)),
        lambda: bz2.compress(b"word " * 100_000 + noise(300_000), 1),
        lambda: b"".join(bz2.compress(noise(130_001, seed), 1 + seed) for seed in range(4)) + bz2.compress(b""),
        lambda: bz2.compress(b""),
        lambda: bz2.compress(b"x"),
    ],
    ids=["one stream", "small blocks", "streams of all levels", "empty", "one byte"],
)
@pytest.mark.parametrize("part", [10**9, 77_777])
def test_parts_are_the_whole(tmp_path: Path, make: Callable[[], bytes], part: int) -> None:
    path = tmp_path / "a.bz2"
    path.write_bytes(make())
    assert in_parts(path, part) == bz2.decompress(path.read_bytes())


def test_bits_that_look_like_the_start_of_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.bz2"
    path.write_bytes(bz2.compress(noise(1_500_000)))
    real = bzip2._marks
    lookalikes = [bzip2._Mark(1_000_003, True), bzip2._Mark(9_000_001, False)]

    def with_lookalikes(data: bytes, base: int) -> list[bzip2._Mark]:
        inside = [mark for mark in lookalikes if base < mark.bit < base + len(data) * 8]
        return sorted(real(data, base) + inside)

    monkeypatch.setattr(bzip2, "_marks", with_lookalikes)
    assert in_parts(path, 10**9) == noise(1_500_000)


def test_damage_and_ends(tmp_path: Path) -> None:
    data = bytearray(bz2.compress(noise(1_000_000)))
    assert ends_properly(bytes(data))
    assert not ends_properly(bytes(data[:-1]))
    assert not ends_properly(bytes(data) + b"more than the end")
    path = tmp_path / "a.bz2"
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(EOFError, match="damaged or cut off"):
        in_parts(path, 10**9)
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(EOFError, match="damaged or cut off"):
        in_parts(path, 10**9)
