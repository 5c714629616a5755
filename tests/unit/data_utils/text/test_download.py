"""Downloads from a local server that supports ranges and drops connections."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from data_utils.text.download import download, main, published_checksum
from utilities.errors import UserError

CONTENT = bytes(range(256)) * 4000
SHA1 = hashlib.sha1(CONTENT).hexdigest()
NAME = "xxwiki-latest-pages-articles.xml.bz2"


class Server(ThreadingHTTPServer):
    """Serves one file and its checksums; ``break_after`` cuts that many answers short, after ``refusals``."""

    content, etag, break_after, ranges = CONTENT, '"v1"', 0, True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[str | None] = []
        self.refusals: list[int] = []  # codes of the next answers

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/{NAME}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        if self.path.endswith("xxwiki-latest-sha1sums.txt"):
            self._send(200, f"00  other.bz2\n{SHA1}  xxwiki-20240101-pages-articles.xml.bz2\n".encode())
        elif self.path == f"/{NAME}":
            self._file()
        else:
            self.send_error(404, "Not Found")

    def _file(self) -> None:
        requested = self.headers.get("Range")
        self.server.requests.append(requested)
        if self.server.refusals:
            return self.send_error(self.server.refusals.pop(0))
        content, total = self.server.content, len(self.server.content)
        headers = {"ETag": self.server.etag}
        if requested and self.server.ranges and self.headers.get("If-Range") == self.server.etag:
            start = int(re.match(r"bytes=(\d+)-", requested).group(1))
            if start >= total:
                return self._send(416, b"", {"Content-Range": f"bytes */{total}"})
            headers["Content-Range"] = f"bytes {start}-{total - 1}/{total}"
            return self._send(206, content[start:], headers)
        return self._send(200, content, headers)

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.server.break_after and len(body) > 1000:
            self.server.break_after -= 1
            body = body[: len(body) // 2]
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    yield running
    running.shutdown()
    running.server_close()


def test_whole_file_with_checksum(server: Server, tmp_path: Path) -> None:
    path = download(server.url, tmp_path, SHA1)
    assert path == tmp_path / NAME
    assert path.read_bytes() == CONTENT
    assert [entry.name for entry in tmp_path.iterdir()] == [NAME]
    download(server.url, tmp_path / NAME, SHA1)
    assert len(server.requests) == 1  # the file exists, so nothing was requested
    with pytest.raises(UserError, match="sha1 is"):
        download(server.url, tmp_path / "f", "0" * 40)
    assert [entry.name for entry in tmp_path.iterdir()] == [NAME]
    (tmp_path / "g.part").write_bytes(CONTENT)  # complete, but not yet renamed
    (tmp_path / "g.part.version").write_text('"v1"')
    assert download(server.url, tmp_path / "g", SHA1).read_bytes() == CONTENT


def test_broken_connections_are_resumed(server: Server, tmp_path: Path) -> None:
    server.break_after = 2
    waits: list[float] = []
    path = download(server.url, tmp_path / "f", SHA1, sleep=waits.append)
    assert path.read_bytes() == CONTENT
    half = len(CONTENT) // 2
    assert server.requests == [None, f"bytes={half}-", f"bytes={half + half // 2}-"]
    assert waits == [2.0, 4.0]
    server.break_after, server.ranges = 1, False
    assert download(server.url, tmp_path / "g", SHA1, sleep=waits.append).read_bytes() == CONTENT


def test_requests_that_an_overloaded_server_refuses_are_repeated(server: Server, tmp_path: Path) -> None:
    server.refusals = [429, 408, 503]
    waits: list[float] = []
    assert download(server.url, tmp_path / "f", SHA1, sleep=waits.append).read_bytes() == CONTENT
    assert waits == [2.0, 4.0, 8.0]
    server.refusals = [429, 429]
    with pytest.raises(UserError, match="answers 429"):
        download(server.url, tmp_path / "g", retries=1, sleep=waits.append)
    server.refusals = [403]
    with pytest.raises(UserError, match="answers 403"):
        download(server.url, tmp_path / "g", sleep=waits.append)
    assert waits == [2.0, 4.0, 8.0, 2.0]


def test_a_later_run_resumes(server: Server, tmp_path: Path) -> None:
    server.break_after = 1
    with pytest.raises(UserError, match="resumes where it stopped"):
        download(server.url, tmp_path / "f", retries=0)
    assert not (tmp_path / "f").exists()
    assert (tmp_path / "f.part").stat().st_size == len(CONTENT) // 2
    assert download(server.url, tmp_path / "f").read_bytes() == CONTENT
    assert server.requests[1] == f"bytes={len(CONTENT) // 2}-"


def test_a_full_disk_is_not_retried(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "f.part").symlink_to("/dev/full")
    assert main(["--url", server.url, "--output", str(tmp_path / "f"), "--checksum", SHA1]) == 2
    assert f"error: {tmp_path / 'f.part'}: No space left on device; free space" in capsys.readouterr().err
    assert len(server.requests) == 1


def test_a_changed_file_is_downloaded_again(server: Server, tmp_path: Path) -> None:
    server.break_after = 1
    with pytest.raises(UserError):
        download(server.url, tmp_path / "f", retries=0)
    server.content, server.etag = CONTENT[::-1], '"v2"'
    assert download(server.url, tmp_path / "f").read_bytes() == CONTENT[::-1]


def test_published_checksum_of_the_latest_dump(server: Server) -> None:
    assert published_checksum(server.url) == SHA1
    assert published_checksum(server.url.replace("xxwiki", "yywiki")) is None


def test_command_line(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--url", server.url, "--output", str(tmp_path / "f")]) == 0
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert main(["--url", server.url + "x", "--output", str(tmp_path / "g")]) == 2
    assert "404" in capsys.readouterr().err
    assert main(["--url", "ftp://example.org/a", "--output", str(tmp_path / "g")]) == 2
    assert main(["--url", server.url, "--output", str(tmp_path / "g"), "--checksum", "abc"]) == 2
    assert "--checksum abc" in capsys.readouterr().err
    assert main(["--url", server.url.rsplit("/", 1)[0] + "/", "--output", str(tmp_path)]) == 2
    assert f"--output {tmp_path}: is a folder; name a file" in capsys.readouterr().err
