"""Reading dumps: encodings, compression, what is left out, and broken files."""

from __future__ import annotations

import bz2
import gzip
import tracemalloc
from pathlib import Path

import pytest

from data_utils.text.dump import read_articles
from utilities.errors import UserError

HEAD = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/"><siteinfo><dbname>x</dbname></siteinfo>'


def page(title: str, text: str, namespace: int = 0, extra: str = "", model: str = "wikitext") -> str:
    return (
        f"<page><title>{title}</title><ns>{namespace}</ns>{extra}<revision><model>{model}</model>"
        f"<text>{text}</text></revision></page>"
    )


DUMP = (
    HEAD
    + page("Cat", "A &lt;b&gt;cat&lt;/b&gt; &amp;amp; a dog.")
    + page("Old name", "#REDIRECT [[Cat]]", extra='<redirect title="Cat" />')
    + page("Talk:Cat", "Talk.", namespace=1)
    + page("Data", "{}", model="json")
    + page("Äpfel 苹果", "Rot.")
    + page("Empty", "")
    + "</mediawiki>"
)
ARTICLES = [("Cat", "A <b>cat</b> &amp; a dog."), ("Äpfel 苹果", "Rot.")]


@pytest.mark.parametrize(
    "encode",
    [
        lambda text: text.encode(),
        lambda text: bz2.compress(text.encode()),
        lambda text: bz2.compress(text[:300].encode()) + bz2.compress(text[300:].encode()),
        lambda text: gzip.compress(text.encode()),
        lambda text: text.encode("utf-16"),
        lambda text: bz2.compress(text.encode("utf-16")),
    ],
    ids=["plain", "bz2", "bz2 multistream", "gzip", "utf-16", "utf-16 bz2"],
)
def test_articles(tmp_path: Path, encode) -> None:
    path = tmp_path / "dump"
    path.write_bytes(encode(DUMP))
    read: list[int] = []
    assert [tuple(article) for article in read_articles(path, read.append)] == ARTICLES
    assert sum(read) == path.stat().st_size


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no XML"),
        (b"Just some text.", "not well-formed XML"),
        (b"<html><body/></html>", "begins with <html>"),
        (DUMP[:-30].encode(), "complete"),
        (bz2.compress(DUMP.encode())[:-20], "cannot be decompressed"),
        (b"BZh9 this is no bz2", "cannot be decompressed"),
        (b"PK\x03\x04zip", "zip"),
    ],
)
def test_broken_files(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "dump.xml"
    path.write_bytes(data)
    with pytest.raises(UserError, match=message) as caught:
        list(read_articles(path))
    assert str(path) in str(caught.value)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        list(read_articles(tmp_path / "absent.xml"))
    with pytest.raises(UserError, match="--wikiextractor"):
        list(read_articles(tmp_path))


def test_memory_is_that_of_a_page_not_of_the_dump(tmp_path: Path) -> None:
    path = tmp_path / "dump.xml"
    with open(path, "w") as stream:
        stream.write(HEAD)
        for number in range(3000):
            stream.write(page(f"Page {number}", "Some words of text here. " * 400))
        stream.write("</mediawiki>")
    assert path.stat().st_size > 25e6
    tracemalloc.start()
    count = sum(1 for _ in read_articles(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 3000
    assert peak < 5e6
