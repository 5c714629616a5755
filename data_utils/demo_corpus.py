# PYTHON_ARGCOMPLETE_OK
"""Makes the demo's corpus of real prose, offline, from the documentation that comes with every Python.

It contains Python's help topics and the docstrings of the standard library and of the installed requirements, as text
with a blank line between documents.

``python -m data_utils.demo_corpus --output runs/demo.txt``
"""

from __future__ import annotations

import argparse
import ast
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

from data_utils.command_line import make_parent, positive
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
SHORTEST_DOCUMENT = 60  # words

_ROLE = re.compile(r":[a-zA-Z:+-]+:`[~!]?([^`<]*?)(?:\s*<[^`>]*>)?`")
_LINK = re.compile(r"`([^`<]+?)\s*<[^`>]*>`_{0,2}")
_LITERAL = re.compile(r"``?([^`]+)``?_{0,2}")
_STRONG = re.compile(r"(?<!\w)\*{1,2}([^*\s][^*]*?)\*{1,2}(?!\w)")
_FOOTNOTE = re.compile(r"\s*\[#?[\w-]*\d\]_?")
_URL = re.compile(r"<?https?://\S+>?")
_NO_TEXT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_NO_PROSE = re.compile(r">>>|::|==|\.\.\.\s|->|[{}|\\~^=]|\b__\w+|%[sdr]|\+\+|--\w|\$\w|@\w|/\w+/|\w_\w+_\w")
_CODE_WORD = re.compile(r"[_/<>\[\]#]|\w\(|\w\.\w")
_LICENCE = re.compile(r"copyright|licen[cs]e|warrant(?:y|ies)|all rights reserved|without limitation", re.IGNORECASE)
_SECTION = re.compile(r"(?:Args|Arguments|Returns?|Raises|Parameters|Yields|Attributes|Examples?|Usage|Note):")
_SENTENCE = re.compile(r"[A-Z\"'(].*[.!?][\"')]?$")


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
    if _NO_TEXT.search(text) or _NO_PROSE.search(text) or _LICENCE.search(text):
        return False
    code = sum(1 for word in words if _CODE_WORD.search(word))
    letters = sum(1 for character in text if character.isalpha() or character == " ")
    return code <= len(words) // 10 and letters >= 0.92 * len(text) and "''" not in text


def _docstrings(path: Path) -> list[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's code
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, RecursionError, OSError):
        return []
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, documented)]
    return [text for text in docstrings if text]


def _candidates(packages: tuple[str, ...]) -> Iterator[list[str]]:
    """Yield the texts of documents, the most readable first: help topics, and the docstrings of each module."""
    with contextlib.suppress(ImportError):
        from pydoc_data.topics import topics  # such as ``help("ASSIGNMENT")``

        yield from ([topics[name]] for name in sorted(topics))
    specs = [importlib.util.find_spec(package) for package in packages]
    roots = [next(iter(spec.submodule_search_locations)) for spec in specs if spec and spec.submodule_search_locations]
    for root in (sysconfig.get_path("stdlib"), *roots):
        for folder, folders, files in os.walk(root):
            folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS and not name.startswith("."))
            yield from (_docstrings(Path(folder, name)) for name in sorted(files) if name.endswith(".py"))


def write_demo_corpus(
    output: Path, words: int = DEFAULT_WORDS, packages: tuple[str, ...] = DEFAULT_PACKAGES
) -> tuple[int, int]:
    """Write documents until there are enough words, or no more, without a paragraph twice; return both numbers."""
    make_parent(output)
    seen: set[str] = set()
    documents = total = 0
    with replacing(output) as stream:
        for texts in _candidates(packages):
            found = dict.fromkeys(paragraph for text in texts for paragraph in plain_prose(text))
            paragraphs = [paragraph for paragraph in found if paragraph not in seen]
            seen.update(paragraphs)
            length = sum(len(paragraph.split()) for paragraph in paragraphs)
            if length >= SHORTEST_DOCUMENT:
                documents, total = documents + 1, total + length
                stream.write(("\n".join(paragraphs) + "\n\n").encode())
            if total >= words:
                break
        if not documents:
            missing = "this Python has no documentation (pydoc_data and sources are stripped)"
            raise UserError(f"{missing}; use text of your own")
    return documents, total


def _run(options: argparse.Namespace) -> None:
    documents, words = write_demo_corpus(options.output, options.words)
    print(f"{options.output}: {documents:,} documents, {words:,} words")


def main(arguments: list[str] | None = None) -> int:
    parser = make_parser("data_utils.demo_corpus", "Makes a text of Python's documentation.")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="text to write")
    parser.add_argument(
        "--words", type=positive, default=DEFAULT_WORDS, metavar="N",
        help="stop at this number of words (default %(default)s)",
    )  # fmt: skip
    return run_main(parser, _run, arguments)


if __name__ == "__main__":
    sys.exit(main())
