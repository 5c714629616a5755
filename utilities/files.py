"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Union


def temporary_beside(path: Path) -> Path:
    """Return a name in the same folder that no other process uses and that patterns such as ``*.tfrecord`` miss."""
    return path.with_name(f".{path.name}.{socket.gethostname()}-{os.getpid()}.tmp")


def write_atomically(path: Path, content: Union[str, bytes]) -> Path:
    """Write a file under a temporary name, flush it to disk and rename it: no reader ever sees half of it.

    Args:
        path: of the file.
        content: text is encoded as UTF-8.

    Returns:
        ``path``.

    Raises:
        OSError: the file cannot be written; the temporary file is removed.
    """
    temporary = temporary_beside(path)
    try:
        with open(temporary, "wb") as stream:
            stream.write(content.encode("utf-8") if isinstance(content, str) else content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return path
