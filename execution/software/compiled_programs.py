"""Keeps the programs that XLA has compiled for this CPU, so that the next start need not compile them again.

TensorFlow can store compiled programs, but ends a run if one of their files is damaged or cannot be written. Its folder
is therefore in memory (``keras_extensions.backend.PROGRAMS``). Before training, an archive on disk is copied there, and
after the first step new programs are written as an archive. Whatever goes wrong with the archive is a warning.

There is an archive for each TensorFlow, processor and set of execution options. TensorFlow itself recognizes a program
by its whole computation, so programs of other models in the archive cost time, but are never used by mistake.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import logging
import os
import stat
import time
import zipfile
from pathlib import Path
from typing import Dict, Optional, Set

from execution.interface import ExecutionOptions
from execution.software.devices import on_gpu
from keras_extensions.backend import KEEPS_PROGRAMS, PROGRAMS, tf
from utilities.environment import processor_identity, usable_cores
from utilities.files import write_atomically

logger = logging.getLogger(__name__)

AUTO = "auto"  # the user's cache folder
SUFFIX = ".programs"
LARGEST, ALL = 256 * 2**20, 512 * 2**20  # bytes of the programs of an archive, and of all archives
ABANDONED = 3600  # seconds after which a temporary file is that of a killed run
VARIABLES = ("XLA_FLAGS", "TF_XLA_FLAGS", "TF_ENABLE_ONEDNN_OPTS")  # they change what XLA compiles

Programs = Dict[str, bytes]  # by TensorFlow's file names


class CompiledPrograms:
    """The programs of one archive.

    Args:
        archive: path of the archive, which need not exist.
    """

    def __init__(self, archive: Path) -> None:
        self._archive = archive
        self._loaded: Set[str] = set()

    def load(self) -> None:
        """Copy the archive's programs to TensorFlow's folder in memory."""
        folder = self._archive.parent
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            check_private(folder, os.stat(folder))
            remove_oldest(folder)
            tf.io.gfile.makedirs(PROGRAMS)
            for name, program in read_archive(self._archive).items():
                with tf.io.gfile.GFile(f"{PROGRAMS}/{name}", "wb") as file:
                    file.write(program)
                self._loaded.add(name)
        except (OSError, ValueError) as error:
            logger.warning("no compiled programs are reused: %s", error)

    def save(self) -> str:
        """Write the programs to the archive if there are new ones, and free their memory.

        Returns:
            Where the first step's programs came from, for the log; empty if it needed none.
        """
        programs = take_programs()
        new = {name: program for name, program in programs.items() if name not in self._loaded}
        if not new:
            return "with the compiled programs of an earlier run" if programs else ""
        try:
            check_private(self._archive.parent, os.stat(self._archive.parent))
            write_archive(self._archive, programs if size(programs) <= LARGEST else new)
        except (OSError, ValueError) as error:
            logger.warning("compiled programs are not kept: %s", error)
            return ""
        return "with compilation; the programs are kept for later runs"


def load_programs(options: ExecutionOptions) -> Optional[CompiledPrograms]:
    """Return the loaded programs of earlier runs with these options.

    Returns:
        None if the options ask for none, if the user has configured TensorFlow's own cache, if the processor is
        unknown, or on a GPU, whose programs TensorFlow would keep by other flags.
    """
    processor = processor_identity()
    if options.executable_cache is None or not KEEPS_PROGRAMS or not processor or on_gpu():
        return None
    folder = Path(options.executable_cache)
    if options.executable_cache == AUTO:
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        folder = Path(cache, "bert-tensorflow", "compiled")
        if not folder.is_absolute():  # there is no home
            return None
    programs = CompiledPrograms(folder / archive_name(options, processor))
    programs.load()
    return programs


def archive_name(options: ExecutionOptions, processor: str) -> str:
    """Return a name that differs if TensorFlow, processor, cores, variables or options differ."""
    same = dataclasses.replace(options, seed=0, compile_only=False, executable_cache=None)
    software = [tf.version.GIT_VERSION, tf.version.COMPILER_VERSION, *(os.environ.get(name) for name in VARIABLES)]
    identity = json.dumps([software, processor, usable_cores(), dataclasses.asdict(same)])
    return f"{tf.__version__}-{hashlib.sha256(identity.encode()).hexdigest()[:32]}{SUFFIX}"


def take_programs() -> Programs:
    """Return the programs in TensorFlow's folder, and remove them there."""
    programs = {}
    for path in tf.io.gfile.glob(f"{PROGRAMS}/*"):
        with tf.io.gfile.GFile(path, "rb") as file:
            programs[path.rpartition("/")[2]] = file.read()
        tf.io.gfile.remove(path)
    return programs


def size(programs: Programs) -> int:
    return sum(map(len, programs.values()))


def read_archive(path: Path) -> Programs:
    """Return the programs of an archive; none if it does not exist.

    Raises:
        OSError: it cannot be read, or another user could have written it.
        ValueError: it is damaged.
    """
    if not path.exists():
        return {}
    with open(path, "rb") as file:
        check_private(path, os.fstat(file.fileno()))
        digest, content = file.read(hashlib.sha256().digest_size), file.read()
    if hashlib.sha256(content).digest() != digest:
        raise ValueError(f"{path} is damaged; this run writes it again")
    os.utime(path)  # the time of its last use, for ``remove_oldest``
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_archive(path: Path, programs: Programs) -> None:
    """Write an archive atomically: a SHA-256 digest, and a zip file.

    Raises:
        OSError: it cannot be written.
        ValueError: the programs are too large.
    """
    if size(programs) > LARGEST:
        raise ValueError(f"they have {size(programs) / 2**20:,.0f} MiB, and the limit is {LARGEST / 2**20:,.0f}")
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, program in programs.items():
            archive.writestr(name, program)
    write_atomically(path, hashlib.sha256(content.getvalue()).digest() + content.getvalue())


def check_private(path: Path, status: os.stat_result) -> None:
    """Refuse a file or folder that another user could have written, because compiled programs are code.

    Raises:
        OSError: it belongs to another user, or others may write to it.
    """
    if status.st_uid != os.getuid():
        raise PermissionError(f"{path} belongs to another user; set execution.executable_cache to a folder of yours")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"others may write to {path}; forbid it with chmod go-w, or remove it")


def remove_oldest(folder: Path) -> None:
    """Remove temporary files of killed runs, and the archives that were not used for longest if all are too large."""
    total = 0
    for path in sorted(folder.iterdir(), key=modified, reverse=True):
        with contextlib.suppress(FileNotFoundError):  # another process removed it
            total += path.stat().st_size if path.suffix == SUFFIX else 0
            abandoned = path.match(f".*{SUFFIX}.*.tmp") and time.time() - modified(path) > ABANDONED
            if abandoned or (path.suffix == SUFFIX and total > ALL):
                path.unlink()


def modified(path: Path) -> float:
    """Return the time of the last change of a file; 0 if it is gone."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
