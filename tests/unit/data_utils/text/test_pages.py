"""Parts of a dump against the whole of it; broken pages and broken dumps."""

from __future__ import annotations

import bz2
from pathlib import Path

import pytest
from data_utils.text.set_aside import SetAside

from data_utils.text import sources
from data_utils.text.dump import read_articles
from data_utils.text.sources import Loaded, dump_source
from tests.real_data import real_data
from tests.unit.wikipedia.test_dump import DUMP, HEAD, page
from utilities.errors import UserError

LONG = (
    HEAD + "".join(page(f"Page {n}", f"Text of page {n}, äöü 苹果. " * (n % 40)) for n in range(400)) + "</mediawiki>"
)


def unit_sizes(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(sources, "SMALLEST_UNIT", size)
    monkeypatch.setattr(sources, "LARGEST_UNIT", size)


@pytest.mark.parametrize("size", [97, 1_000, 50_000, 10**7])
@pytest.mark.parametrize("compressed", [False, True])
def test_parts_hold_each_article_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, compressed: bool
) -> None:
    path = tmp_path / "dump.xml"
    path.write_bytes(bz2.compress(LONG.encode()) if compressed else LONG.encode())
    unit_sizes(monkeypatch, size)
    assert [tuple(found) for found in dump_source(path).read()] == [tuple(article) for article in read_articles(path)]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_what_cannot_be_cut_is_read_from_the_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    path = tmp_path / "dump.xml"
    path.write_bytes(DUMP.encode(encoding))
    unit_sizes(monkeypatch, 10)
    source = dump_source(path)
    assert {type(unit) is Loaded for unit in source.units()} == {encoding == "utf-16"}
    assert [tuple(found) for found in source.read()] == [tuple(article) for article in read_articles(path)]


def test_real_dumps_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    path = real_data("wikipedia_dump", "enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2")
    unit_sizes(monkeypatch, 200_000)
    assert [tuple(found) for found in dump_source(path).read()] == [tuple(article) for article in read_articles(path)]


def test_a_broken_page_is_set_aside_and_the_others_are_read(tmp_path: Path) -> None:
    pages = [page("A", "First."), page("B &amp; C", "Un & closed <b"), page("D", "Last.")]
    path = tmp_path / "dump.xml"
    path.write_text(HEAD + "".join(pages) + "</mediawiki>")
    first, broken, last = dump_source(path).read()
    assert (first.title, last.title) == ("A", "D")
    assert isinstance(broken, SetAside)
    assert broken.title == "B & C"
    assert "not well-formed XML" in broken.reason


def test_a_page_that_is_not_utf8_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "dump.xml"
    path.write_bytes((HEAD + page("A", "a~b") + page("D", "Last.") + "</mediawiki>").encode().replace(b"~", b"\xff"))
    broken, last = dump_source(path).read()
    assert (broken.title, last.title) == ("A", "D")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (LONG.encode()[:-5], "without </mediawiki>"),
        (LONG.encode()[:-300], "complete"),
        (bz2.compress(LONG.encode())[:-20], "cannot be decompressed"),
        (bz2.compress(LONG.encode()[:-300]), "complete"),
    ],
)
def test_a_dump_that_was_cut_off_is_refused_before_work_begins(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "dump.xml"
    path.write_bytes(data)
    with pytest.raises(UserError, match=message) as caught:
        dump_source(path)
    assert str(path) in str(caught.value)
