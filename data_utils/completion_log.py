"""Resumes killed data preparation: records what an output folder is made from and which work units are done.

``recipe.json`` describes the inputs and settings of a folder; a folder with another recipe is rejected. Each work
unit first writes its files and then a completion record with their sizes and checksums; a unit whose record matches its
files is not repeated.
"""

from __future__ import annotations

import enum
import json
import os
import shutil
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence

from crc32c import crc32c

from data_utils.command_line import Progress
from data_utils.parallel import Pool
from data_utils.records.index import index_path
from data_utils.records.manifest import MANIFEST_NAME, WORK_FOLDER
from data_utils.records.writer import TEMPORARY_FILES
from utilities.errors import UserError
from utilities.files import json_digest, write_atomically

RECIPE_NAME = "recipe.json"
RECIPE_VERSION = 2  # must be raised whenever the same input and settings would give other bytes
RECORD_FILES = "*.tfrecord"
READ_BYTES = 1 << 22
END_BYTES = 4096  # read from a file's beginning and end for its identity
MAX_DIFFERENCES_SHOWN = 3


class CompletionLog(NamedTuple):
    """The completion records of one step. Picklable."""

    records: Path  # folder of the completion records
    files: Path  # folder of the files that the units write
    read_back: bool = True  # whether to verify checksums; False for files that are verified when they are used

    @classmethod
    def begin(cls, files: Path, step: str, settings: Mapping[str, Any], read_back: bool = True) -> CompletionLog:
        """Open the log of a step that writes into ``files``; completion records of other settings are deleted."""
        records = files / WORK_FOLDER / f"{step}-{json_digest(settings)[:12]}"
        for stale in (files / WORK_FOLDER).glob(f"{step}-*"):
            if stale != records:
                shutil.rmtree(stale)
        records.mkdir(parents=True, exist_ok=True)
        return cls(records, files, read_back)

    def finish(self, unit: int, names: Sequence[str], facts: Mapping[str, Any]) -> Dict[str, Any]:
        """Record that a unit's files are on disk; return the ``facts`` as read from JSON, like ``done``.

        Raises:
            UserError: another command has ended its work in the same folder, and deleted these files.
        """
        try:
            entries = [{"name": name, **_size_and_checksum(self.files / name)} for name in names]
            text = json.dumps({"files": entries, "facts": dict(facts)}, ensure_ascii=False)
            write_atomically(self.path(unit), text.encode())
        except FileNotFoundError as error:
            raise UserError(
                f"{self.files}: another command works in this folder; let it end, then run this one again"
            ) from error
        return json.loads(text)["facts"]

    def done(self, unit: int) -> Optional[Dict[str, Any]]:
        """Return the facts of a unit whose files are all present; None for a unit that must still be done."""
        try:
            record = json.loads(self.path(unit).read_text(encoding="utf-8"))
            if all(map(self._is_there, record["files"])):
                return record["facts"]
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return None

    def _is_there(self, entry: Mapping[str, Any]) -> bool:
        path = self.files / entry["name"]
        if path.stat().st_size != entry["bytes"]:
            return False
        return not self.read_back or _size_and_checksum(path)["crc32c"] == entry["crc32c"]

    def path(self, unit: int) -> Path:
        return self.records / f"{unit:06d}.json"


class Done(NamedTuple):
    """A worker's report of a unit: its number, its size, and the facts of its completion record."""

    number: int
    size: int
    facts: Dict[str, Any]


def run_units(
    pool: Pool,
    completion_log: CompletionLog,
    function: Callable[[Any], Done],
    units: Iterable[Any],
    size: Optional[int],
    progress: Progress,
    on_done: Callable[[int, Dict[str, Any]], str],
) -> None:
    """Process all units that are not done yet, which resumes a killed step.

    Args:
        pool: Workers.
        completion_log: Completion records of the step, written by ``function``.
        function: Processes one unit.
        units: All units in order, each with a ``number`` from 0 on and a ``size`` in the unit of the progress.
        size: Total bytes of text; None if they are not known.
        progress: The display, which each unit advances.
        on_done: Called in this process for each unit, including those done earlier, in any order; its result is shown
            after the progress.
    """

    def open_units() -> Iterable[Any]:
        for unit in units:
            facts = completion_log.done(unit.number)
            if facts is None:
                yield unit
            else:
                on_done(unit.number, facts)
                progress.skip(unit.size)

    for done in pool.map(function, open_units(), size):
        progress.advance(done.size, on_done(done.number, done.facts))


def clear_work(folder: Path) -> None:
    """Delete the completion records and intermediate files of a folder that is complete or will be made again."""
    shutil.rmtree(folder / WORK_FOLDER, ignore_errors=True)
    for unfinished in folder.glob(TEMPORARY_FILES):  # left by a killed run
        unfinished.unlink(missing_ok=True)


class Status(enum.Enum):
    """How much of a recipe's output a folder contains."""

    EMPTY = "nothing"
    BEGUN = "a part"
    COMPLETE = "all"
    OTHER = "something else"


def folder_status(folder: Path, recipe: Mapping[str, Any], last_file: str, products: str) -> Status:
    """Return how much of a recipe's output a folder contains.

    Args:
        folder: Output folder; may be absent.
        recipe: Inputs and settings of this run; parts that are not known yet are left out and not compared.
        last_file: Name of the file that is written last.
        products: Pattern of the files that are written before it.

    Raises:
        UserError: The folder is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--output {folder}: a file, not a folder")
    is_complete = (folder / last_file).exists()
    if not (is_complete or any(folder.glob(products)) or any((folder / WORK_FOLDER).rglob("*.json"))):
        return Status.EMPTY
    old = _read_recipe(folder)
    if old is None or differences(_same_parts(old, recipe), recipe):
        return Status.OTHER
    return Status.COMPLETE if is_complete else Status.BEGUN


def mismatch_error(folder: Path, recipe: Mapping[str, Any], product: str) -> UserError:
    """Return the error for a folder of another recipe, which contains a ``product`` such as "a data set"."""
    old = _read_recipe(folder)
    if old is None:
        return UserError(f"--output {folder}: contains {product} already; choose another folder or --overwrite")
    changes = differences(_same_parts(old, recipe), recipe)
    more = f" and {len(changes) - MAX_DIFFERENCES_SHOWN} more" if len(changes) > MAX_DIFFERENCES_SHOWN else ""
    return UserError(
        f"--output {folder}: contains {product} of other settings ({'; '.join(changes[:MAX_DIFFERENCES_SHOWN])}{more});"
        " run it with those, choose another folder, or replace it with --overwrite"
    )


def check_dataset_folder(folder: Path, recipe: Mapping[str, Any], overwrite: bool) -> Status:
    """Return how much of a data set is done; parts of the recipe that are not known yet may be missing.

    Raises:
        UserError: The folder contains something else, and ``overwrite`` is false.
    """
    status = folder_status(folder, recipe, MANIFEST_NAME, RECORD_FILES)
    if status is Status.OTHER and not overwrite:
        raise mismatch_error(folder, recipe, "a data set")
    return status


def prepare_dataset_folder(folder: Path, recipe: Mapping[str, Any], overwrite: bool) -> bool:
    """Delete the output of another recipe, and return whether the data set is already complete.

    Raises:
        UserError: The folder contains something else, and ``overwrite`` is false.
    """
    status = check_dataset_folder(folder, recipe, overwrite)
    if status is Status.COMPLETE and not overwrite:
        clear_work(folder)  # left by a run that was killed at the very end
        return True
    if status is not Status.BEGUN or not has_recipe(folder, recipe):
        folder.mkdir(parents=True, exist_ok=True)
        for path in [folder / MANIFEST_NAME, *folder.glob(RECORD_FILES)]:
            index_path(path).unlink(missing_ok=True)
            path.unlink(missing_ok=True)
        begin_recipe(folder, recipe)
    return False


def begin_recipe(folder: Path, recipe: Mapping[str, Any]) -> None:
    """Write ``recipe.json``; completion records of another recipe are deleted. The same recipe gives the same bytes."""
    if not has_recipe(folder, recipe):
        clear_work(folder)
    text = json.dumps({"version": RECIPE_VERSION, **recipe}, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
    write_atomically(folder / RECIPE_NAME, text.encode())


def has_recipe(folder: Path, recipe: Mapping[str, Any]) -> bool:
    """Return whether the folder's recipe is this one."""
    return not differences(_read_recipe(folder) or {}, recipe)


def _read_recipe(folder: Path) -> Optional[Dict[str, Any]]:
    try:
        recipe = json.loads((folder / RECIPE_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return recipe if isinstance(recipe, dict) else None


def _same_parts(old: Mapping[str, Any], recipe: Mapping[str, Any]) -> Dict[str, Any]:
    return {name: old[name] for name in ("version", *recipe) if name in old}


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> List[str]:
    """Describe each setting that differs between two recipes."""
    theirs, ours = _flat(old), _flat({"version": RECIPE_VERSION, **new})
    return [
        f"{key} {_short(theirs.get(key))} there, {_short(ours.get(key))} now"
        for key in {**ours, **theirs}
        if theirs.get(key) != ours.get(key)
    ]


def _flat(value: Any, prefix: str = "") -> Dict[str, Any]:
    if not isinstance(value, Mapping):
        return {prefix.rstrip("."): value}
    return {key: item for name, part in value.items() for key, item in _flat(part, f"{prefix}{name}.").items()}


def _short(value: Any) -> str:
    text = "unset" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else text[:39] + "…"


def identify_files(files: Sequence[Path]) -> Dict[str, Any]:
    """Identify input files by number, size and a checksum, without reading them completely.

    The checksum covers each file's name, size, beginning and end, so a folder may be moved between two runs.
    """
    checksum = total = 0
    for path in files:
        size = path.stat().st_size
        total += size
        with open(path, "rb") as stream:
            parts = [os.fsencode(path.name) + f" {size} ".encode(), stream.read(END_BYTES)]
            stream.seek(max(0, size - END_BYTES))
            parts.append(stream.read(END_BYTES))
        checksum = crc32c(b"".join(parts), checksum)
    return {"files": len(files), "bytes": total, "checksum": f"{checksum:08x}"}


def _size_and_checksum(path: Path) -> Dict[str, int]:
    checksum = size = 0
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(READ_BYTES), b""):
            checksum = crc32c(block, checksum)
            size += len(block)
    return {"bytes": size, "crc32c": checksum}
