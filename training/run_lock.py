"""One run at a time in a folder."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import platform
import time
from pathlib import Path
from typing import Iterator

from utilities.errors import UserError

logger = logging.getLogger(__name__)

LOCK_NAME = ".lock"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keeps other runs out of a folder for the time of a block.

    The lock is the kernel's, on an open file: it ends with the process, however that ends, so none is ever left behind.

    Args:
        folder: must exist.

    Raises:
        UserError: another run has it, or nothing can be written there.
    """
    path = folder / LOCK_NAME
    try:
        file = open(path, "a+", encoding="utf-8")  # noqa: SIM115 - held until the block ends
    except OSError as error:
        raise UserError(
            f"{folder}: cannot be written to ({error.strerror}); name a folder to write to (output_dir, save_ckpt_path)"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = " ".join(file.read(200).split()) or "another process"
            raise UserError(
                f"{folder}: another run is writing to it ({owner}); wait for it to end, or begin one with another name"
                " (--name) and save_ckpt_path"
            ) from None
        except OSError as error:
            logger.warning("%s: no lock on this file system (%s); start no second run in it", folder, error.strerror)
        with contextlib.suppress(OSError):  # who holds it is told for convenience only
            file.truncate(0)
            file.write(f"process {os.getpid()} on {platform.node()} since {time.strftime('%Y-%m-%d %H:%M:%S')}\n")
            file.flush()
        yield
