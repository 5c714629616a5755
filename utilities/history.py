"""The history of a run from its beginning to its end, including every resume: one line of JSON per event."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Dict, List

from utilities.files import append_json_line, read_json_lines

HISTORY_NAME = "history.jsonl"

BEGIN, RESUME, INTERRUPT, REWIND, END = "begin", "resume", "interrupt", "rewind", "end"
SKIP = "skip"  # corrupt records were skipped


class History:
    def __init__(self, folder: Path) -> None:
        self.path = folder / HISTORY_NAME

    def add(self, event: str, step: int, **values: Any) -> None:
        """Append an event that happened after ``step`` updates."""
        now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        append_json_line(self.path, {"time": now, "event": event, "step": step, **values})

    def events(self) -> List[Dict[str, Any]]:
        """Return all events, oldest first, without unreadable lines."""
        try:
            return [event for event in read_json_lines(self.path) if event]
        except OSError:
            return []

    @property
    def finished(self) -> bool:
        """Whether the run was completed and not resumed afterwards."""
        return self._last(1) == [END]

    @property
    def had_finished(self) -> bool:
        """Whether the run was completed when it was resumed, and nothing was recorded since."""
        return self._last(2) == [END, RESUME]

    def _last(self, count: int) -> List[Any]:
        return [event.get("event") for event in self.events()][-count:]
