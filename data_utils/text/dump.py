"""Reads a MediaWiki XML dump with WikiExtractor, a program of its own that the user installs.

WikiExtractor is under the AGPL: it is never imported, and runs as a process.
"""

from __future__ import annotations

import contextlib
import html
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from data_utils.text.compressed import compression, opened
from data_utils.text.readers import Document, Documents, Positioned, read_files, read_wikiextractor
from utilities.errors import UserError

INSTALL = "pip install wikiextractor==3.1.0"
EXTRACTED, EXTRACTING = "extracted", "extracting-"  # folders in the work folder
DUMP_END = b"</mediawiki>"
TAIL_BYTES = 1 << 12
COPY_BYTES = 1 << 20

_EMPTY_BRACKETS = re.compile(r"[ \t]*[(（][\s,;:，；：]*[)）]")
_BEGIN_OF_BRACKETS = re.compile(r"([(（])[\s,;，；]+")


def check_dump(path: Path) -> None:
    """Reject a dump that WikiExtractor cannot read, or the beginning of one, before any work."""
    if path.is_dir():
        raise UserError(f"{path}: a folder, not a dump; for WikiExtractor's folders use --wikiextractor")
    if not path.is_file():
        raise UserError(f"{path}: no such file; give the pages-articles XML dump, plain or compressed")
    if find_spec("wikiextractor") is None:
        raise UserError(f"--dump: needs WikiExtractor, which is not installed: {INSTALL}")
    if not compression(path):
        with open(path, "rb") as stream:
            stream.seek(max(0, path.stat().st_size - TAIL_BYTES))
            if DUMP_END not in stream.read():
                problem = f"ends without {DUMP_END.decode()}; is the file a MediaWiki dump, and complete?"
                raise UserError(f"{path}: {problem}")


def read_dump(path: Path, work: Path, processes: int) -> Positioned:
    """Yield the articles of a dump, which WikiExtractor first writes into a folder, unless an earlier run did.

    The user of this function deletes the folder ``work``.
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
    """Run WikiExtractor on the decompressed dump, so that a damaged file is noticed here; it would wait forever."""
    print(f"dump: WikiExtractor reads {path}", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "wikiextractor.WikiExtractor", "--quiet", "--json", "--no-templates"]
    command += ["--processes", str(processes), "--output", str(folder), "/dev/stdin"]
    env = {**os.environ, "PYTHONUTF8": "1"}
    with opened(path) as (_, text), tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=said, env=env, start_new_session=True
        )
        assert process.stdin is not None
        try:
            with contextlib.suppress(BrokenPipeError):  # it has ended, and says why
                shutil.copyfileobj(text, process.stdin, COPY_BYTES)
                process.stdin.close()
            process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # its processes, too
            process.wait()
        said.seek(0)
        lines = said.read().decode("utf-8", "replace").strip().splitlines()
    if process.returncode or any(line.startswith("Traceback") for line in lines):
        reason = lines[-1] if lines else process.returncode
        raise UserError(f"{path}: WikiExtractor failed ({reason}); is it a whole dump?")
    if not any(entry.stat().st_size for entry in folder.rglob("wiki_*")):
        raise UserError(f"{path}: WikiExtractor found no article; is it a pages-articles dump, with its <siteinfo>?")


def _read_tidied(path: Path, stream: IO[bytes]) -> Documents:
    for document in read_wikiextractor(path, stream):
        yield Document(document.title, tidy(document.text)) if isinstance(document, Document) else document


def tidy(text: str) -> str:
    """Remove what WikiExtractor leaves, such as "(; , )" and "&nbsp;": empty brackets, and HTML's entities."""
    return _BEGIN_OF_BRACKETS.sub(r"\1", _EMPTY_BRACKETS.sub("", html.unescape(text)))
