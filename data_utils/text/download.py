"""Step ``download``: downloads a dump, resumes where it stopped, and verifies the file.

The server's ETag or date is stored next to a partial file. If the file on the server has changed since, the download
starts again, so two dumps are never mixed. HTTP ranges: RFC 9110 section 14.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import os
import re
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

from data_utils.command_line import Progress, make_parent, positive
from utilities.commands import RUN_AGAIN, make_parser, run_main
from utilities.errors import UserError
from utilities.files import DISK_FULL, name_full_disk

DEFAULT_URL = "https://dumps.wikimedia.org/enwiki/latest/enwiki-latest-pages-articles.xml.bz2"
AGENT = "bert-data-preparation/1.0 (python urllib)"
BLOCK_BYTES = 1 << 18
TIMEOUT_SECONDS = 60.0
FIRST_WAIT_SECONDS = 2.0  # before a retry, doubled each time
RETRIED_CODES = {408, 429, *range(500, 600)}  # timeout, too many requests, errors of the server
DIGESTS = {32: "md5", 40: "sha1", 64: "sha256"}  # hexadecimal digits → algorithm


def download(
    url: str,
    output: Path,
    checksum: str | None = None,
    retries: int = 5,
    sleep: Callable[[float], None] = time.sleep,
) -> Path:
    """Download a file, or the missing rest of it.

    Args:
        url: An http or https address.
        output: The file, or an existing folder, in which it gets the URL's name. If the file exists and its checksum is
            correct or unknown, nothing is downloaded.
        checksum: MD5, SHA-1 or SHA-256 in hexadecimal, distinguished by length.
        retries: Attempts after a broken connection or an answer in ``RETRIED_CODES``; each resumes where the last one
            stopped.
        sleep: Function that waits a number of seconds; tests replace it.

    Returns:
        The file's path.

    Raises:
        UserError: The server does not have the file or cannot be reached, the checksum is wrong, or the address
            names no file.
        OSError: The disk is full.
    """
    algorithm = _algorithm(checksum)
    if output.is_dir():
        output = output / unquote(Path(urlsplit(url).path).name)
    make_parent(output)
    partial = output.with_name(output.name + ".part")
    if output.exists():
        _verify(output, algorithm, checksum, "delete it to download it again")
        return output
    for attempt in range(retries + 1):
        try:
            _fetch(url, partial)
            break
        except urllib.error.HTTPError as error:
            if error.code not in RETRIED_CODES or attempt == retries:
                raise UserError(f"{url}: the server answers {error.code} {error.reason}") from error
        except (OSError, http.client.HTTPException) as error:
            name_full_disk(error, partial)
            if getattr(error, "errno", None) in DISK_FULL:
                raise
            if attempt == retries:
                reason = getattr(error, "reason", error)
                raise UserError(f"{url}: {reason}; {RUN_AGAIN}") from error
        sleep(FIRST_WAIT_SECONDS * 2**attempt)
    try:
        _verify(partial, algorithm, checksum, "it was deleted; run the command again")
    except UserError:
        partial.unlink()
        _version_file(partial).unlink(missing_ok=True)
        raise
    os.replace(partial, output)
    _version_file(partial).unlink(missing_ok=True)
    return output


def published_checksum(url: str, sums_url: str | None = None) -> str | None:
    """Return the checksum that Wikimedia publishes with a dump (``enwiki-latest-sha1sums.txt`` or md5), or None.

    The lists name dumps by date, even if the file is called ``latest``.
    """
    name = unquote(Path(urlsplit(url).path).name)
    wiki = re.match(r"([a-z_]+wiki[a-z]*)-(latest|\d{8})-", name)
    if sums_url:
        candidates = [sums_url]
    elif wiki:
        candidates = [urljoin(url, f"{wiki.group(1)}-{wiki.group(2)}-{kind}sums.txt") for kind in ("sha1", "md5")]
    else:
        return None
    pattern = re.compile(re.escape(name).replace("latest", r"(?:latest|\d{8})"))
    for candidate in candidates:
        try:
            with urllib.request.urlopen(_request(candidate), timeout=TIMEOUT_SECONDS) as answer:
                lines = answer.read().decode("utf-8", "replace").splitlines()
        except (OSError, http.client.HTTPException):
            continue
        for line in lines:
            digest, _, listed = line.partition(" ")
            if pattern.fullmatch(listed.strip(" *")):
                return digest
    return None


def _request(url: str, headers: dict[str, str] | None = None) -> urllib.request.Request:
    if urlsplit(url).scheme not in ("http", "https"):
        raise UserError(f"{url}: not an http or https address")
    return urllib.request.Request(url, headers={"User-Agent": AGENT, **(headers or {})})


def _version_file(partial: Path) -> Path:
    return partial.with_name(partial.name + ".version")


def _fetch(url: str, partial: Path) -> None:
    """Download the missing part of a file and append it to the partial file."""
    have = partial.stat().st_size if partial.exists() else 0
    version_file = _version_file(partial)
    version = version_file.read_text(encoding="utf-8") if version_file.exists() else ""
    headers = {"Range": f"bytes={have}-", "If-Range": version} if have and version else {}
    try:
        answer = urllib.request.urlopen(_request(url, headers), timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        size = re.match(r"bytes \*/(\d+)$", error.headers.get("Content-Range", ""))
        if error.code == 416 and size and int(size.group(1)) == have:
            return  # the partial file was complete already
        if error.code == 416:
            partial.unlink()
            return _fetch(url, partial)
        raise
    with answer:
        resumed = answer.status == 206
        etag = answer.headers.get("ETag", "")
        strong = "" if etag.startswith("W/") else etag  # only a strong tag, or a date, may be used with ranges
        length = answer.headers.get("Content-Length")
        start = have if resumed else 0
        total = start + int(length) if length else None
        label = f"download {partial.name[: -len('.part')]}"
        with open(partial, "ab" if resumed else "wb") as stream, Progress(total, label) as progress:
            version_file.write_text(strong or answer.headers.get("Last-Modified", ""), encoding="utf-8")
            progress.advance(start, f"resumed at {start / 1e6:,.1f} MB" if resumed else "")
            while block := answer.read(BLOCK_BYTES):
                stream.write(block)
                progress.advance(len(block))
            if total is not None and stream.tell() < total:
                raise http.client.IncompleteRead(b"", total - stream.tell())
            os.fsync(stream.fileno())
    return None


def _algorithm(checksum: str | None) -> str | None:
    if checksum is None:
        return None
    if len(checksum) not in DIGESTS or not re.fullmatch(r"[0-9a-fA-F]+", checksum):
        raise UserError(f"--checksum {checksum}: not an md5, sha1 or sha256 in hexadecimal")
    return DIGESTS[len(checksum)]


def _verify(path: Path, algorithm: str | None, checksum: str | None, remedy: str) -> None:
    if algorithm is None or checksum is None:
        return
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with open(path, "rb") as stream, Progress(path.stat().st_size, f"check {algorithm}") as progress:
        while block := stream.read(BLOCK_BYTES * 4):
            digest.update(block)
            progress.advance(len(block))
    if digest.hexdigest() != checksum.lower():
        raise UserError(f"{path}: {algorithm} is {digest.hexdigest()}, not {checksum.lower()}; {remedy}")


def _run(options: argparse.Namespace) -> None:
    checksum = options.checksum
    if checksum is None and not options.no_check:
        checksum = published_checksum(options.url, options.checksums_url)
        if checksum is None:
            if options.checksums_url:
                raise UserError(f"--checksums-url {options.checksums_url}: cannot be read, or does not list the file")
            print("no checksum was found for the file; it is not checked", file=sys.stderr)
    print(download(options.url, options.output, checksum, options.retries))


def main(arguments: list[str] | None = None) -> int:
    """Run the step's command."""
    parser = make_parser("data_utils.text.download", "Downloads a dump; run it again to resume after an interruption.")
    parser.add_argument("--url", default=DEFAULT_URL, help="address of the dump (default %(default)s)")
    parser.add_argument(
        "--output", type=Path, default=Path(), metavar="PATH", help="file, or folder to put it in (default %(default)s)"
    )
    check = parser.add_mutually_exclusive_group()
    check.add_argument("--checksum", metavar="HEX", help="md5, sha1 or sha256; default: the published one, if any")
    check.add_argument("--checksums-url", metavar="URL", help="list to look the checksum up in")
    check.add_argument("--no-check", action="store_true", help="do not look for a published checksum")
    parser.add_argument(
        "--retries",
        type=positive,
        default=5,
        metavar="N",
        help="attempts after a broken connection (default %(default)s)",
    )
    return run_main(parser, _run, arguments)


if __name__ == "__main__":
    sys.exit(main())
