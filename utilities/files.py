"""Writes files atomically, computes their checksums, and reads JSON, also of lines that may be incomplete."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import socket
import stat
from pathlib import Path
from typing import Any, BinaryIO, Dict, Iterator, List, Optional, Sequence, Tuple, Union

from utilities.errors import UserError

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # a full disk, a quota, a limit of the size of files
PROJECT = Path(__file__).resolve().parent.parent  # the folder with configs/
LARGEST_SETTINGS = 1 << 20  # bytes of a file of settings; configs have a few thousand


def temporary_path(path: Path) -> Path:
    """Return a name in the same folder that no other process uses and patterns such as ``*.tfrecord`` do not match."""
    return path.with_name(f".{path.name}.{socket.gethostname()}-{os.getpid()}.tmp")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing under a temporary name; when the block ends, flush it to disk and rename it.

    No reader ever sees an incomplete file. If the block or the disk fails, the temporary file is removed; the error of
    a full disk names the file.
    """
    temporary = temporary_path(path)
    try:
        with open(temporary, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        name_full_disk(error, path)
        temporary.unlink(missing_ok=True)
        raise


def write_atomically(path: Path, content: Union[str, bytes]) -> Path:
    """Write a whole file with :func:`replacing`, encoding text as UTF-8; return ``path``."""
    with replacing(path) as stream:
        stream.write(content.encode("utf-8") if isinstance(content, str) else content)
    return path


def name_full_disk(error: Optional[BaseException], path: Path) -> None:
    """Add the file's name to the error of a full disk, which lacks it if a write to an open file failed."""
    if isinstance(error, OSError) and error.errno in DISK_FULL and error.filename is None:
        error.filename = str(path)


@contextlib.contextmanager
def only_command_in(folder: Path) -> Iterator[None]:
    """Within the block, refuse other commands that work in a folder, which is made; what stays empty of it is removed.

    The lock is the kernel's, on the open folder: it leaves no file, and ends with the process. A file system without
    such locks, such as NFS, has none.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # a file, or a folder that cannot be made, is reported by those who use it
            made = [path for path in (folder, *folder.parents) if not path.exists()]
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            stack.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                stack.callback(_remove_empty, made)
            except BlockingIOError as error:
                reason = "another command works in this folder; let it end, then run this one again"
                raise UserError(f"{folder}: {reason}") from error
        yield


def _remove_empty(folders: Sequence[Path]) -> None:
    with contextlib.suppress(OSError):  # the first that is not empty ends it
        for folder in folders:
            folder.rmdir()


def failed_write(error: OSError, folder: Path, fix: str) -> UserError:
    """Return the user's error for one of the file system: the file, or else the folder, the cause and the fix."""
    path = error.filename2 or error.filename or folder  # the second is the target of a rename
    return UserError(f"{path}: {error.strerror}; {fix}")


def disk_error(message: str) -> Optional[OSError]:
    """Return the error of the file system that a library's message quotes, such as a full disk, or None."""
    for number in (*DISK_FULL, errno.EROFS):
        if os.strerror(number) in message:
            return OSError(number, os.strerror(number))
    return None


def parse_json(text: Union[str, bytes]) -> Any:
    """Return a JSON value as ``json.loads`` does, but it is also a ``ValueError`` if the text repeats a key in an
    object, or contains half a character (a lone surrogate).
    """
    value = json.loads(text, object_pairs_hook=_object)
    # The escape of a surrogate; two make a character.
    if "\\ud" in str(text).lower() and not is_unicode(json.dumps(value, ensure_ascii=False)):
        raise ValueError("it has half a character, a lone surrogate")
    return value


def is_unicode(text: str) -> bool:
    """Return whether a text has whole characters only, no lone surrogates, which arguments that are not UTF-8 have."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _object(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {json.dumps(twice)} appears twice in one object")
    return values


def read_regular(path: Path) -> bytes:
    """Return the content of a file that a user names, without waiting for a device or a pipe without a writer.

    A shell's own pipe is read: ``<(command)`` is ``/dev/fd/63``. It is an ``OSError`` if the file is not a regular one,
    or is larger than ``LARGEST_SETTINGS``.
    """
    mode = os.stat(path).st_mode
    from_shell = stat.S_ISFIFO(mode) and str(path).startswith("/dev/fd/")
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or from_shell):
        raise OSError(errno.EINVAL, "it is a device, a pipe or a socket")
    with open(path, "rb") as stream:
        content = stream.read(LARGEST_SETTINGS + 1)
    if len(content) > LARGEST_SETTINGS:
        raise OSError(errno.EFBIG, f"it has more than {LARGEST_SETTINGS:,} bytes")
    return content


def sha256(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file, which is read in parts."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for part in iter(lambda: file.read(1 << 20), b""):
            digest.update(part)
    return digest.hexdigest()


def json_digest(value: Any) -> str:
    """Return the hexadecimal SHA-256 of a JSON value, independent of key order and white space."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode("utf-8")).hexdigest()


def read_json_object(path: Path, prefix: str = "", fix: str = "download it again") -> Dict[str, Any]:
    """Return the JSON object in a file, or raise a ``UserError`` that begins with ``prefix`` and ends with ``fix``."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise UserError(f"{prefix}{path} cannot be read ({reason}); {fix}") from error
    if not isinstance(content, dict):
        raise UserError(f"{prefix}{path} does not contain a JSON object; {fix}")
    return content


def append_json_line(path: Path, content: Dict[str, Any]) -> None:
    """Append an object to a file with one per line.

    If a killed process left an incomplete line, that line is ended and kept; :func:`read_json_lines` gives None for it.
    """
    with open(path, "a+b") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write((json.dumps(content) + "\n").encode("utf-8"))


def read_json_lines(path: Path) -> List[Optional[Dict[str, Any]]]:
    """Return the objects of a file with one per line, and None for each other line, such as an incomplete one."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return [_parsed(line) for line in lines if line.strip()]


def read_steps(path: Path) -> List[Dict[str, Any]]:
    """Return the objects with a ``step`` in a file with one per line; none if there is no such file."""
    rows = read_json_lines(path) if path.exists() else []
    return [row for row in rows if row and isinstance(row.get("step"), int)]


def _parsed(line: str) -> Optional[Dict[str, Any]]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def check_new_folder(folder: Path, key: str) -> None:
    """Refuse a folder to write, named by the flag ``key``, that has content, or is a file."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{key}: {folder} exists and is not empty; name another folder")
