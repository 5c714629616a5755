"""Leaves out what TensorFlow writes to standard error while it is being loaded.

Its C++ code writes some lines before it reads its log level: which instructions it uses, that there is no GPU. They are
the same at every start, and nothing that a user could mend.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import threading
from typing import Iterator, List

STANDARD_ERROR = 2
SECONDS = 0.2  # until other lines are passed on
_NOISE = re.compile(
    rb"WARNING: All log messages before absl|[IWE]\d{4} \d\d:\d\d:\d+\.\d+ |\d{4}-\d\d-\d\d [\d:.]+: [IWE] \w+/"
)


@contextlib.contextmanager
def without_noise() -> Iterator[None]:
    """Within the block, leave out TensorFlow's lines and pass on all others; show all if the block fails."""
    with contextlib.ExitStack() as stack:
        try:
            real = os.dup(STANDARD_ERROR)
            stack.callback(os.close, real)
            aside = stack.enter_context(tempfile.TemporaryFile()).fileno()
        except OSError:  # there is no standard error, or nowhere to put it aside
            yield
            return
        noise: List[bytes] = []
        ended = threading.Event()
        thread = threading.Thread(target=_pass_on, args=(aside, real, ended, noise), daemon=True)
        os.dup2(aside, STANDARD_ERROR)
        thread.start()
        failed = True
        try:
            yield
            failed = False
        finally:
            os.dup2(real, STANDARD_ERROR)
            ended.set()
            thread.join()
            if failed:
                _write(real, b"".join(noise))


def _pass_on(aside: int, real: int, ended: threading.Event, noise: List[bytes]) -> None:
    """Copy what is written to one file to another, line by line, except for noise, which is kept."""
    position, rest = 0, b""
    while True:
        is_last = ended.wait(SECONDS)
        text = os.pread(aside, os.fstat(aside).st_size - position, position)
        position += len(text)
        *lines, rest = (rest + text).splitlines(keepends=True) if text else [rest]
        if is_last or rest.endswith(b"\n"):
            lines, rest = [*lines, rest], b""
        for line in lines:
            if _NOISE.match(line):
                noise.append(line)
            else:
                _write(real, line)
        if is_last:
            return


def _write(descriptor: int, text: bytes) -> None:
    with contextlib.suppress(OSError):  # a reader of standard error that has gone
        os.write(descriptor, text)
