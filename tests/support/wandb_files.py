"""Reads the records of an offline W&B run from its ``.wandb`` file, without W&B's server.

The file is a log in LevelDB's format after 7 bytes of its own: blocks of 32 KiB with chunks of checksum (4 bytes),
length (2), kind (1: whole, 2: first, 3: middle, 4: last) and data; a record is one message of
``wandb_internal.proto``.
"""

from __future__ import annotations

import json
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wandb.proto import wandb_internal_pb2

HEADER, BLOCK = 7, 32 * 1024
WRITING_SECONDS = 30.0


@dataclass
class OfflineRun:
    """One offline run, or one part of a resumed run."""

    id: str = ""
    project: str = ""
    name: str = ""
    tags: tuple[str, ...] = ()
    resumes: bool = False
    host: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    history: dict[int, dict[str, Any]] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    artifacts: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    system_metrics: int = 0
    exit_code: int | None = None


def offline_runs(folder: Path) -> list[OfflineRun]:
    """Return every run in a folder, oldest first.

    W&B writes them in a process of its own, which may still be at work when a run has been finished; its last record
    is awaited.
    """
    paths, until = sorted((folder / "wandb").glob("offline-run-*/*.wandb")), time.monotonic() + WRITING_SECONDS
    runs = [read(path) for path in paths]
    while any(run.exit_code is None for run in runs) and time.monotonic() < until:
        time.sleep(0.1)
        runs = [read(path) for path in paths]
    return runs


def records(path: Path) -> list[Any]:
    data, position, parts, result = path.read_bytes(), HEADER, [], []
    while position + 7 <= len(data):
        if BLOCK - position % BLOCK < 7:
            position += BLOCK - position % BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", data, position)
        if position + 7 + length > len(data):  # not written to its end
            break
        parts.append(data[position + 7 : position + 7 + length])
        position += 7 + length
        if kind in (1, 4):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(b"".join(parts))
            result.append(record)
            parts = []
    return result


def read(path: Path) -> OfflineRun:
    result = OfflineRun()
    for record in records(path):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run = record.run
            result.id, result.project, result.name = run.run_id, run.project, run.display_name
            result.tags, result.resumes, result.host = tuple(run.tags), run.resume, run.host
            result.config.update({item.key: json.loads(item.value_json) for item in run.config.update})
        elif kind == "history":
            result.history[record.history.step.num] = values(record.history.item)
        elif kind == "summary":
            result.summary.update(values(record.summary.update))
        elif kind == "stats":
            result.system_metrics += 1
        elif kind == "exit":
            result.exit_code = record.exit.exit_code
        elif kind == "request" and record.request.WhichOneof("request_type") == "log_artifact":
            keep_artifact(result.artifacts, record.request.log_artifact.artifact)
        elif kind == "artifact":
            keep_artifact(result.artifacts, record.artifact)
    return result


def values(items: Any) -> dict[str, Any]:
    return {".".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items}


def keep_artifact(artifacts: dict[str, Any], artifact: Any) -> None:
    artifacts[artifact.name] = (artifact.type, tuple(entry.path for entry in artifact.manifest.contents))
