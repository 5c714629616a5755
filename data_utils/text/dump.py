"""Reads a MediaWiki XML dump with WikiExtractor, a program of its own that the user installs.

WikiExtractor is under the AGPL: it is never imported, and runs as a process.
"""

from __future__ import annotations

import html
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from data_utils.text.compressed import compression
from data_utils.text.documents import Document
from data_utils.text.readers import Documents, Positioned, read_files, read_wikiextractor
from utilities.errors import UserError

INSTALL = "pip install wikiextractor==3.1.0"
EXTRACTED, EXTRACTING = "extracted", "extracting-"  # folders in the work folder
DUMP_END = b"</mediawiki>"
TAIL_BYTES = 1 << 12

_EMPTY_BRACKETS = re.compile(r"[ \t]*[(（][\s,;:，；：]*[)）]")
_BEGIN_OF_BRACKETS = re.compile(r"([(（])[\s,;，；]+")


def check_dump(path: Path) -> None:
    """Reject a dump that WikiExtractor cannot read, or the beginning of one, before any work.

    Raises:
        UserError: The file is missing, cut off or not a MediaWiki dump, or WikiExtractor is not installed.
    """
    if path.is_dir():
        raise UserError(f"{path}: a folder, not a dump; for WikiExtractor's folders use --wikiextractor")
    if not path.is_file():
        raise UserError(f"{path}: no such file; give the pages-articles XML dump, plain, .bz2 or .gz")
    if find_spec("wikiextractor") is None:
        raise UserError(f"--dump: needs WikiExtractor, which is not installed: {INSTALL}")
    kind = compression(path)
    if kind in (".xz", ".zst"):
        raise UserError(f"{path}: WikiExtractor reads plain, .bz2 and .gz dumps only; decompress it first")
    if not kind:
        with open(path, "rb") as stream:
            stream.seek(max(0, path.stat().st_size - TAIL_BYTES))
            if DUMP_END not in stream.read():
                raise UserError(
                    f"{path}: ends without {DUMP_END.decode()}; is the file a MediaWiki dump, and complete?"
                )


def read_dump(path: Path, work: Path, processes: int) -> Positioned:
    """Yield the articles of a dump, which WikiExtractor first writes into a folder, unless an earlier run did.

    Args:
        path: The dump.
        work: Folder for the articles; the user of this function deletes it.
        processes: Number of WikiExtractor's processes.

    Raises:
        UserError: WikiExtractor fails, or finds no article.
    """
    yield from read_files(_extracted_files(path, work, processes), _read_tidied)


def _extracted_files(path: Path, work: Path, processes: int) -> list[Path]:
    folder = work / EXTRACTED
    if not folder.exists():
        for unfinished in work.glob(EXTRACTING + "*"):
            shutil.rmtree(unfinished)
        work.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=EXTRACTING, dir=work))
        _run_wikiextractor(path, unfinished, processes)
        unfinished.rename(folder)  # its name says that it is complete
    return sorted(entry for entry in folder.rglob("wiki_*") if entry.stat().st_size)


def _run_wikiextractor(path: Path, folder: Path, processes: int) -> None:
    print(f"dump: WikiExtractor reads {path}", file=sys.stderr, flush=True)
    dump = folder / f"dump.xml{compression(path)}"  # WikiExtractor goes by the name
    dump.symlink_to(path.absolute())
    command = [sys.executable, "-m", "wikiextractor.WikiExtractor", "--quiet", "--json", "--no-templates"]
    options = ["--processes", str(processes), "--output", str(folder), str(dump)]
    ended = subprocess.run([*command, *options], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    said = ended.stderr.strip().splitlines()
    dump.unlink()
    if ended.returncode or any(line.startswith("Traceback") for line in said):
        raise UserError(f"{path}: WikiExtractor failed ({said[-1] if said else ended.returncode}); is it a whole dump?")
    if not any(entry.stat().st_size for entry in folder.rglob("wiki_*")):
        raise UserError(f"{path}: WikiExtractor found no article; is it a pages-articles dump, with its <siteinfo>?")


def _read_tidied(path: Path, stream: IO[bytes]) -> Documents:
    for document in read_wikiextractor(path, stream):
        yield Document(document.title, tidy(document.text)) if isinstance(document, Document) else document


def tidy(text: str) -> str:
    """Remove what WikiExtractor leaves: brackets around what it left out, and HTML's entities.

    Example:
        >>> tidy("Oslo (; , ) is a city (, born 1048)&nbsp;there.")
        'Oslo is a city (born 1048)\\xa0there.'
    """
    return _BEGIN_OF_BRACKETS.sub(r"\1", _EMPTY_BRACKETS.sub("", html.unescape(text)))
