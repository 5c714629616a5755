"""What happened to a run, from its begin over every resume to its end: one line of JSON an event."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Dict, List

HISTORY_NAME = "history.jsonl"

BEGIN, RESUME, INTERRUPT, REWIND, END = "begin", "resume", "interrupt", "rewind", "end"
SKIP = "skip"  # of records that cannot be used


class History:
    """The events of a run.

    Args:
        folder: the run's.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / HISTORY_NAME

    def add(self, event: str, step: int, **facts: Any) -> None:
        """Append an event; ``step`` is the number of updates done."""
        record = {"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "event": event, "step": step, **facts}
        with open(self.path, "a+b") as file:
            if file.tell() and not self.path.read_bytes().endswith(b"\n"):
                file.write(b"\n")  # killed within a line
            file.write((json.dumps(record) + "\n").encode("utf-8"))

    def events(self) -> List[Dict[str, Any]]:
        """All events, oldest first; lines that cannot be read are left out."""
        try:
            lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []
        return [event for event in map(_parsed, lines) if event]

    @property
    def finished(self) -> bool:
        """Whether the run came to its end and was not taken up again."""
        return [event.get("event") for event in self.events()][-1:] == [END]


def _parsed(line: str) -> Dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}
