"""Makes the demo's corpus of real prose, offline, from the documentation that comes with every Python.

It contains Python's help topics and the docstrings of the standard library and of the installed requirements, as a
MediaWiki dump, so that the demo is processed like a Wikipedia dump.

``python -m data_utils.demo_corpus --output runs/demo/data/corpus.xml``
"""

from __future__ import annotations

import argparse
import ast
import bz2
import contextlib
import importlib.util
import inspect
import os
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple
from xml.sax.saxutils import escape

from data_utils.command_line import Progress, make_parent, positive
from utilities.commands import make_parser, run_main
from utilities.errors import UserError
from utilities.files import replacing

DEFAULT_PACKAGES = (
    "numpy", "nltk", "matplotlib", "tf_keras", "tensorflow", "transformers", "pydantic", "requests", "rich",
    "tqdm", "click", "werkzeug", "markdown", "absl", "pip", "setuptools", "packaging", "urllib3",
    "huggingface_hub",
)  # fmt: skip
SKIPPED_FOLDERS = frozenset(
    """test tests testing idlelib lib2to3 site-packages dist-packages turtledemo ensurepip __pycache__ _vendor
    models distutils encodings pydoc_data""".split()  # noqa: SIM905
)
DEFAULT_WORDS = 600_000
SHORTEST_PAGE = 60  # words
DATE = "2024-01-01T00:00:00Z"  # a dump has dates; a fixed one keeps the file the same on every run

_ROLE = re.compile(r":[a-zA-Z:+-]+:`[~!]?([^`<]*?)(?:\s*<[^`>]*>)?`")
_LINK = re.compile(r"`([^`<]+?)\s*<[^`>]*>`_{0,2}")
_LITERAL = re.compile(r"``?([^`]+)``?_{0,2}")
_STRONG = re.compile(r"(?<!\w)\*{1,2}([^*\s][^*]*?)\*{1,2}(?!\w)")
_FOOTNOTE = re.compile(r"\s*\[#?[\w-]*\d\]_?")
_URL = re.compile(r"<?https?://\S+>?")
_NO_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")  # not allowed even if escaped
_NO_PROSE = re.compile(r">>>|::|==|\.\.\.\s|->|[{}|\\~^=]|\b__\w+|%[sdr]|\+\+|--\w|\$\w|@\w|/\w+/|\w_\w+_\w")
_CODE_WORD = re.compile(r"[_/<>\[\]#]|\w\(|\w\.\w")
_LICENCE = re.compile(r"copyright|licen[cs]e|warrant(?:y|ies)|all rights reserved|without limitation", re.IGNORECASE)
_SECTION = re.compile(r"(?:Args|Arguments|Returns?|Raises|Parameters|Yields|Attributes|Examples?|Usage|Note):")
_SENTENCE = re.compile(r"[A-Z\"'(].*[.!?][\"')]?$")


class Page(NamedTuple):
    """A page of the dump: a unique title, the source of the text, and paragraphs of prose."""

    title: str
    origin: str
    paragraphs: list[str]

    @property
    def words(self) -> int:
        return sum(len(paragraph.split()) for paragraph in self.paragraphs)


def plain_prose(markup: str) -> list[str]:
    """Return the paragraphs of prose of a reStructuredText, one line each, without code, tables and inline markup."""
    paragraphs = []
    for block in re.split(r"\n\s*\n", inspect.cleandoc(markup)):
        lines = [re.sub(r"^(?:[*•-]|\d+[.)])\s+", "", line.strip()) for line in block.splitlines()]
        text = " ".join(" ".join(lines).split())
        text = _URL.sub("", _ROLE.sub(r"\1", text))
        text = _STRONG.sub(r"\1", _LITERAL.sub(r"\1", _LINK.sub(r"\1", text)))
        text = " ".join(_FOOTNOTE.sub("", text).split())
        if _is_prose(text):
            paragraphs.append(text)
    return paragraphs


def _is_prose(text: str) -> bool:
    """Return whether a paragraph reads as sentences. The heuristic would rather lose prose than keep code."""
    words = text.split()
    if len(words) < 8 or not _SENTENCE.match(text) or _SECTION.match(text):
        return False
    if _NO_XML.search(text) or _NO_PROSE.search(text) or _LICENCE.search(text):
        return False
    code = sum(1 for word in words if _CODE_WORD.search(word))
    letters = sum(1 for character in text if character.isalpha() or character == " ")
    return code <= len(words) // 10 and letters >= 0.92 * len(text) and "''" not in text


def _topic_pages() -> Iterator[tuple[str, str, list[str]]]:
    """Yield Python's help topics, such as ``help("ASSIGNMENT")``."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        return
    for name in sorted(topics):
        yield f"Python topic {name}", f"pydoc_data.topics {name}", [topics[name]]


def _docstrings(path: Path) -> list[str]:
    """Return the docstrings of a Python file in order; none if it cannot be parsed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's code
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, RecursionError, OSError):
        return []
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, documented)]
    return [text for text in docstrings if text]


def _module_pages(root: Path, package: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the docstrings of each module under a folder, sorted by path."""
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS and not name.startswith("."))
        for name in sorted(files):
            if name.endswith(".py"):
                path = Path(folder, name)
                parts = [package, *path.relative_to(root).with_suffix("").parts]
                module = ".".join(part for part in parts if part and part != "__init__")
                yield f"Module {module}", module, _docstrings(path)


def _candidates(packages: tuple[str, ...]) -> Iterator[tuple[str, str, list[str]]]:
    """Yield title, origin and texts of pages, the most readable first."""
    yield from _topic_pages()
    yield from _module_pages(Path(sysconfig.get_path("stdlib")), "")
    for package in packages:
        try:
            spec = importlib.util.find_spec(package)
        except (ImportError, ValueError):
            spec = None
        if spec and spec.submodule_search_locations:
            yield from _module_pages(Path(next(iter(spec.submodule_search_locations))), package)


def collect_pages(words: int = DEFAULT_WORDS, packages: tuple[str, ...] = DEFAULT_PACKAGES) -> Iterator[Page]:
    """Yield pages of prose until the number of words is reached or nothing is left; no paragraph is repeated.

    The docstrings of packages are read after Python's own; absent packages are skipped.
    """
    seen: set[str] = set()
    total = 0
    for title, origin, texts in _candidates(packages):
        paragraphs = []
        for text in texts:
            for paragraph in plain_prose(text):
                if paragraph not in seen:
                    seen.add(paragraph)
                    paragraphs.append(paragraph)
        page = Page(title, origin, paragraphs)
        if page.words >= SHORTEST_PAGE:
            yield page
            total += page.words
            if total >= words:
                return


def _wikitext(page: Page) -> str:
    """Return a page as an editor would write it, including the markup that extraction must remove."""
    lead, *rest = page.paragraphs
    lines = [
        f"{{{{Infobox documentation | name = {page.title} | source = {{{{code|{page.origin}}}}} }}}}",
        f"{lead}<ref>{{{{cite web | title = {page.origin}}}}}</ref>",
    ]
    if rest:
        lines += ["== Details ==", "\n\n".join(rest)]
    return "\n\n".join([*lines, "[[Category:Documentation]]"])


def _page_xml(number: int, page: Page) -> str:
    return (
        f"  <page>\n    <title>{escape(page.title)}</title>\n    <ns>0</ns>\n    <id>{number}</id>\n"
        f"    <revision>\n      <id>{number}</id>\n      <timestamp>{DATE}</timestamp>\n"
        "      <contributor><username>documentation</username><id>1</id></contributor>\n"
        "      <model>wikitext</model>\n      <format>text/x-wiki</format>\n"
        f'      <text xml:space="preserve">{escape(_wikitext(page))}</text>\n    </revision>\n  </page>\n'
    )


_HEAD = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/" version="0.10" xml:lang="en">
  <siteinfo>
    <sitename>Documentation</sitename>
    <dbname>documentation</dbname>
    <namespaces>
      <namespace key="0" case="first-letter" />
      <namespace key="6" case="first-letter">File</namespace>
      <namespace key="14" case="first-letter">Category</namespace>
    </namespaces>
  </siteinfo>
"""


def write_demo_corpus(
    output: Path, words: int = DEFAULT_WORDS, packages: tuple[str, ...] = DEFAULT_PACKAGES
) -> tuple[int, int]:
    """Write the corpus as a MediaWiki dump, compressed for ``.bz2``; return the numbers of documents and words.

    Raises:
        UserError: This Python has no documentation at all.
    """
    make_parent(output)
    documents = total = 0
    with contextlib.ExitStack() as stack:
        stream: IO[bytes] = stack.enter_context(replacing(output))
        if output.suffix == ".bz2":
            stream = stack.enter_context(bz2.open(stream, "wb"))
        progress = stack.enter_context(Progress(words, "collect prose", "words"))
        stream.write(_HEAD.encode())
        for page in collect_pages(words, packages):
            documents += 1
            total += page.words
            stream.write(_page_xml(documents, page).encode("utf-8", "replace"))
            progress.advance(page.words, f"{documents:,} documents")
        if not documents:
            raise UserError(
                "this Python has no documentation (pydoc_data and sources are stripped); use text of your own"
            )
        stream.write(b"</mediawiki>\n")
    return documents, total


def _run(options: argparse.Namespace) -> None:
    documents, words = write_demo_corpus(options.output, options.words)
    print(f"{options.output}: {documents:,} documents, {words:,} words")


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = make_parser("data_utils.demo_corpus", "Makes a MediaWiki dump of Python's documentation.")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="dump to write, .xml or .xml.bz2")
    parser.add_argument(
        "--words", type=positive, default=DEFAULT_WORDS, metavar="N",
        help="stop at this number of words (default %(default)s)",
    )  # fmt: skip
    return run_main(parser, _run, arguments)


if __name__ == "__main__":
    sys.exit(main())
