"""The folder of the command: what was decided, and the time that was worked, so that the same command goes on there."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Dict, Iterator, Mapping, NamedTuple, Optional

from pydantic import TypeAdapter, ValidationError

from reports.run_files import is_number
from settings.fields import value_at
from tasks.from_text.inputs import Measured
from tasks.from_text.recipe import Recipe
from utilities.errors import UserError
from utilities.files import append_json_line, read_json_lines, read_json_object, write_atomically
from utilities.text_folder import PLAN
from utilities.validation import first_problem

UPDATES, TIMES, RESULT, PAGE = "updates.json", "times.jsonl", "result.json", "index.html"
LAP_SECONDS = 5.0  # between two notes of the time
AGAIN = "repeat the command as it was, or give another --name"


class Planned(NamedTuple):
    """What was decided, what was measured before (None: nothing yet), and whether there are more hours now."""

    recipe: Recipe
    measured: Optional[Measured]
    has_more_hours: bool


class Folder:
    """The folder ``output_dir/name``.

    Each step is timed from the end of the one before, the first from ``started``, ``time.monotonic()`` at the start.
    """

    def __init__(self, path: Path, started: float) -> None:
        self.path = path
        self._lap = started

    def planned(self, command: Mapping[str, Any], inputs: Mapping[str, str]) -> Optional[Planned]:
        """Return what an earlier start of the same command, with as many hours or fewer, decided; else None."""
        plan = self.read(PLAN)
        if plan is None:
            if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
                raise UserError(f"{self.path}: is there already and not of this command; give another --name")
            return None
        now, hours = json.loads(json.dumps(command)), value_at(plan, "command.hours")
        changed = [name for name in now if value_at(plan, f"command.{name}") != now[name]]
        has_more = changed == ["hours"] and is_number(hours) and now["hours"] > hours
        if changed and not has_more:
            what = "the text has changed" if changed == ["text"] else f"{', '.join(changed)} changed"
            raise UserError(f"{self.path}: was begun with another command ({what}); {AGAIN}")
        machine = value_at(plan, "inputs.machine")
        if machine != inputs["machine"]:
            print(f"The plan was made on another machine ({machine}), for whose speed its time is.")
        try:
            decided = {"recipe": plan.get("recipe"), "measured": plan.get("measured"), "has_more_hours": has_more}
            return TypeAdapter(Planned).validate_python(decided)
        except ValidationError as error:
            raise UserError(f"{self.path / PLAN}: {first_problem(error)}; give another --name") from error

    def begin(
        self, command: Mapping[str, Any], recipe: Recipe, inputs: Mapping[str, str], measured: Optional[Measured]
    ) -> None:
        """Write down what is decided; arguments as for ``planned``, the choice, and what it is based on."""
        self.path.mkdir(parents=True, exist_ok=True)
        found = None if measured is None else measured._asdict()
        self.write(PLAN, {"command": command, "inputs": inputs, "recipe": asdict(recipe), "measured": found})

    def lap(self, step: str) -> None:
        """Write down that a step has ended, and the seconds since the one before."""
        now = time.monotonic()
        seconds, self._lap = now - self._lap, now
        append_json_line(self.path / TIMES, {"step": step, "seconds": round(seconds, 3)})

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Within the block, which is a step, write its time down as it passes, so that a kill does not lose it."""
        ended = threading.Event()

        def count() -> None:
            while not ended.wait(LAP_SECONDS):
                self.lap(name)

        counting = threading.Thread(target=count, name="times", daemon=True)
        counting.start()
        try:
            yield
        finally:
            ended.set()
            counting.join()
            self.lap(name)

    def worked(self) -> float:
        return sum(self.seconds().values()) + time.monotonic() - self._lap

    def seconds(self) -> Dict[str, float]:
        """Return the seconds worked, by step."""
        path = self.path / TIMES
        totals: Dict[str, float] = {}
        for line in read_json_lines(path) if path.exists() else []:
            step, seconds = (line or {}).get("step"), (line or {}).get("seconds")
            if isinstance(step, str) and is_number(seconds):
                totals[step] = totals.get(step, 0.0) + seconds
        return totals

    def read(self, name: str) -> Optional[Dict[str, Any]]:
        path = self.path / name
        fix = "delete it and repeat the command, or give another --name"
        return read_json_object(path, fix=fix) if path.exists() else None

    def write(self, name: str, content: Mapping[str, Any]) -> Path:
        return write_atomically(self.path / name, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


@contextlib.contextmanager
def damage_in(path: Path) -> Iterator[None]:
    """Within the block, which uses what a file contains, report that this is not what this version writes."""
    try:
        yield
    except UserError:  # which says what is wrong
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ZeroDivisionError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise UserError(
            f"{path}: is damaged, or of another version ({reason}); delete it and repeat the command"
        ) from error
