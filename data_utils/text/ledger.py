"""Which work units are done: files first, then a record of them, so that a killed run goes on where it stopped.

A done-record names the settings that the files were made with, and their sizes and checksums. Where it is there and
fits, the unit is not worked on again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from crc32c import crc32c

from data_utils.records.writer import TEMPORARY_FILES, write_atomically

WORK_FOLDER = ".work"  # in the output folder, while it is not complete
READ_BYTES = 1 << 22


class Ledger(NamedTuple):
    """The done-records of one step. Can be sent to workers.

    Attributes:
        records: folder of the done-records.
        files: folder of what the units write.
        settings: digest of what decides their content.
        read_back: whether a file counts as there only when its checksum is right; else its size must do, for files
            that are checked where they are used.
    """

    records: Path
    files: Path
    settings: str
    read_back: bool = True

    @classmethod
    def begin(cls, files: Path, step: str, settings: Mapping[str, Any], read_back: bool = True) -> Ledger:
        """The ledger of a step that writes into ``files``; records of other settings are forgotten."""
        digest = digest_of(settings)
        records = files / WORK_FOLDER / f"{step}-{digest[:12]}"
        for stale in (files / WORK_FOLDER).glob(f"{step}-*"):
            if stale != records:
                shutil.rmtree(stale)
        records.mkdir(parents=True, exist_ok=True)
        return cls(records, files, digest, read_back)

    def finish(self, unit: int, names: Sequence[str], facts: Mapping[str, Any]) -> dict[str, Any]:
        """Notes that a unit's files are on disk.

        Args:
            unit: its number.
            names: of the files, in ``files``.
            facts: what the run must know of it later; JSON.

        Returns:
            The facts, as they will be read again.
        """
        entries = [{"name": name, **size_and_checksum(self.files / name)} for name in names]
        record = {"settings": self.settings, "files": entries, "facts": dict(facts)}
        text = json.dumps(record, ensure_ascii=False)
        write_atomically(self.path(unit), text.encode())
        return json.loads(text)["facts"]

    def done(self, unit: int) -> dict[str, Any] | None:
        """The facts of a unit that is done, its files checked; None for one that is to be worked on."""
        try:
            record = json.loads(self.path(unit).read_text(encoding="utf-8"))
            if record["settings"] != self.settings:
                return None
            return record["facts"] if all(map(self._is_there, record["files"])) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _is_there(self, entry: Mapping[str, Any]) -> bool:
        path = self.files / entry["name"]
        if path.stat().st_size != entry["bytes"]:
            return False
        return not self.read_back or size_and_checksum(path)["crc32c"] == entry["crc32c"]

    def path(self, unit: int) -> Path:
        """The unit's done-record."""
        return self.records / f"{unit:06d}.json"


def forget(folder: Path) -> None:
    """Removes the done-records and intermediate files of a folder that is complete, or to be made anew."""
    shutil.rmtree(folder / WORK_FOLDER, ignore_errors=True)
    for unfinished in folder.glob(TEMPORARY_FILES):  # of a run that was killed
        unfinished.unlink(missing_ok=True)


def digest_of(value: Any) -> str:
    """SHA-256 of a JSON value, in hexadecimal; the order of keys does not matter."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=os.fspath)
    return hashlib.sha256(text.encode()).hexdigest()


def size_and_checksum(path: Path) -> dict[str, int]:
    """``bytes`` and ``crc32c`` of a file."""
    checksum = size = 0
    with open(path, "rb") as stream:
        while block := stream.read(READ_BYTES):
            checksum = crc32c(block, checksum)
            size += len(block)
    return {"bytes": size, "crc32c": checksum}
