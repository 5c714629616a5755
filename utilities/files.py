"""Files that are written whole or not at all, and files of JSON lines, which may end in a torn one."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from pathlib import Path
from typing import Any, BinaryIO, Dict, Iterator, List, Optional, Union

from utilities.errors import UserError


def temporary_beside(path: Path) -> Path:
    """Return a name in the same folder that no other process uses and that patterns such as ``*.tfrecord`` miss."""
    return path.with_name(f".{path.name}.{socket.gethostname()}-{os.getpid()}.tmp")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing under a temporary name; when the block ends, flush it to disk and rename it.

    No reader ever sees half of it. If the block or the disk fails, the temporary file is removed.

    Raises:
        OSError: the file cannot be written.
    """
    temporary = temporary_beside(path)
    try:
        with open(temporary, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_atomically(path: Path, content: Union[str, bytes]) -> Path:
    """Write a whole file by :func:`replacing`, text as UTF-8; return ``path``."""
    with replacing(path) as stream:
        stream.write(content.encode("utf-8") if isinstance(content, str) else content)
    return path


def read_json_object(path: Path, prefix: str = "") -> Dict[str, Any]:
    """Return the JSON object in a file.

    Raises:
        UserError: it cannot be read or is none; the message begins with ``prefix``.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise UserError(f"{prefix}{path} cannot be read ({reason}); get it anew") from error
    if not isinstance(content, dict):
        raise UserError(f"{prefix}{path} holds no JSON object; get it anew")
    return content


def read_json_lines(path: Path) -> List[Optional[Dict[str, Any]]]:
    """Return the objects of a file with one per line, and None for each line that is no object, such as a torn one.

    Raises:
        OSError: the file cannot be read.
    """
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return [_parsed(line) for line in lines if line.strip()]


def _parsed(line: str) -> Optional[Dict[str, Any]]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None
