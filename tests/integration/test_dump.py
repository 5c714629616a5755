"""Dumps, which WikiExtractor reads: articles, what it leaves, dumps that cannot be used, killed extractions."""

from __future__ import annotations

import bz2
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from data_utils.text import dump
from data_utils.text.dump import tidy
from tests.integration.test_preprocessing import run
from tests.integration.test_preprocessing_restart import Stopped
from tests.support.real_data import real_data
from tests.support.runs import content
from tests.support.wiki_dumps import HEAD, TAIL, page

pytestmark = pytest.mark.slow
pytest.importorskip("wikiextractor")

ENGLISH = "enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
OPTIONS = ["--workers", 2, "--vocab-size", 500, "--max-seq-length", 32, "--max-predictions", 5]
PROSE = "'''City {}''' ({{{{IPA|x}}}}, {{{{lang|y}}}}) is a [[town|small town]]. It has no river."
TEXT = HEAD + "".join(page(f"City {n}", PROSE.format(n)) for n in range(40))


def sentences(folder: Path) -> str:
    return "".join(path.read_text() for path in sorted((folder / "corpus").glob("sentences_*.txt")))


def prepare(path: Path, output: Path) -> int:
    return run("--dump", path, "--output", output, "--min-characters", 10, *OPTIONS)


def test_articles_become_sentences(tmp_path: Path) -> None:
    """The file's name need not say how it is compressed."""
    pages = page("Talk:City", "Not an article. " * 9, namespace=1) + page("Town", "#REDIRECT [[City]]")
    (tmp_path / "dump").write_bytes(bz2.compress((TEXT + pages + TAIL).encode()))
    assert prepare(tmp_path / "dump", tmp_path / "out") == 0
    expected = "".join(f"City {n} is a small town.\nIt has no river.\n\n" for n in range(40))
    assert sentences(tmp_path / "out") == expected
    assert not (tmp_path / "out" / "corpus" / ".work").exists()


@pytest.mark.long
def test_real_articles(tmp_path: Path) -> None:
    assert prepare(real_data("wikipedia_dump", ENGLISH), tmp_path / "out") == 0
    text = sentences(tmp_path / "out")
    assert text.startswith("Anarchism is a political philosophy")
    assert len(text) > 2_000_000
    for left in ("()", "( )", "(, )", "&nbsp;", "&amp;", "<ref"):
        assert left not in text
    totals = json.loads((tmp_path / "out" / "manifest.json").read_text())["totals"]
    assert totals["documents"] > 90 and totals["set_aside"] == 0


@pytest.mark.parametrize(
    ("text", "tidied"),
    [
        ("Oslo () is.", "Oslo is."),
        ("Oslo ( ) is (; ,).", "Oslo is."),
        ("Oslo (, born 1048) is.", "Oslo (born 1048) is."),
        ("a &lt; b&nbsp;c &amp; d", "a < b\u00a0c & d"),
        ("f(x) and (y)", "f(x) and (y)"),
        ("北京（，）是。", "北京是。"),
    ],
)
def test_what_wikiextractor_leaves_is_tidied(text: str, tidied: str) -> None:
    assert tidy(text) == tidied


def cut_within_a_block() -> bytes:
    """Return the beginning of a dump of several blocks of bz2."""
    pages = "".join(page(f"City {n}", f"{n} houses and {n * n} windows. " * 200) for n in range(1500))
    return bz2.compress((HEAD + pages + TAIL).encode())[:-3000]


BROKEN: dict[str, tuple[Callable[[], bytes], str]] = {
    "cut": (lambda: TEXT.encode(), "ends without </mediawiki>"),
    "cut within a block": (cut_within_a_block, "cannot be decompressed"),
    "in UTF-16": (lambda: bz2.compress((TEXT + TAIL).encode("utf-16")), "WikiExtractor failed"),
    "without namespaces": (
        lambda: ("<mediawiki>\n" + page("A", "Text. " * 50) + TAIL).encode(), "found no article"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_dumps_that_cannot_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    make, problem = BROKEN[name]
    (tmp_path / "dump").write_bytes(make())
    assert prepare(tmp_path / "dump", tmp_path / "out") == 2
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith(f"error: {tmp_path / 'dump'}: ") and problem in last


def test_without_wikiextractor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dump").write_text(TEXT + TAIL)
    monkeypatch.setattr(dump, "find_spec", lambda name: None)
    assert prepare(tmp_path / "dump", tmp_path / "out") == 2
    assert "pip install wikiextractor==3.1.0" in capsys.readouterr().err


def test_an_extraction_that_is_killed_is_done_again_and_one_that_ended_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "dump"
    path.write_text(TEXT + TAIL)
    assert prepare(path, tmp_path / "whole") == 0
    real = dump._run_wikiextractor
    calls: list[Path] = []

    def killed(dump_path: Path, folder: Path, processes: int) -> None:
        real(dump_path, folder, processes)
        calls.append(folder)
        (folder / "AA" / "wiki_00").write_text("half")
        raise Stopped

    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(dump, "_run_wikiextractor", killed)
        prepare(path, tmp_path / "out")
    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr("data_utils.text.sentences.save_parameters", lambda *_: (_ for _ in ()).throw(Stopped()))
        prepare(path, tmp_path / "out")
    assert not calls[0].exists()
    monkeypatch.setattr(dump, "_run_wikiextractor", killed)
    assert prepare(path, tmp_path / "out") == 0
    assert len(calls) == 1
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def test_a_dump_is_extracted_once_and_still_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its articles were extracted a second time to look at their beginning, and again for each resume."""
    path = tmp_path / "dump"
    prose = "Мой город {} стоит у реки. Край, в котором он стоит, большой и тихий."
    path.write_text(HEAD + "".join(page(f"Город {n}", prose.format(n)) for n in range(40)) + TAIL, encoding="utf-8")
    for _ in range(2):
        assert prepare(path, tmp_path / "out") == 0
    said = capsys.readouterr().err
    assert said.count("WikiExtractor reads") == 1
    assert said.count("--keep-accents keeps them") == 2
