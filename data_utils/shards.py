"""Makes the shards of a data set, which several workers share.

A shard is the unit of work and of resume. A function makes its files from its content and returns a result; the
result is written last, into the working folder. A shard is done if its result is there, and its files have the sizes
that are written beside it. If a command was killed, it makes only the missing shards when it is run again. The number
of workers never changes the bytes.
"""

from __future__ import annotations

import json
import logging
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from tqdm import tqdm

from data_utils.records.manifest import WORK_FOLDER
from utilities.commands import RUN_AGAIN
from utilities.errors import UserError
from utilities.files import write_atomically

logger = logging.getLogger(__name__)

SHARDS_PER_WORKER = 2  # one in progress and one waiting
WAIT_SECONDS = 15.0  # for a shard, until it is asked whether there are workers


class Shard(NamedTuple):
    """A part of the input that becomes files of its own. Picklable."""

    number: int  # from 0
    content: Any
    size: int  # what the progress counts


class Step(NamedTuple):
    """A step of a preparation, which writes its files into a folder, with the results of its shards. Picklable."""

    folder: Path
    name: str

    def finish(self, number: int, names: Sequence[str], result: Dict[str, Any]) -> Dict[str, Any]:
        """Write the result of a shard whose files, named relative to the folder, are written; return it."""
        try:
            sizes = {name: (self.folder / name).stat().st_size for name in names}
            self._path(number).parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"sizes": sizes, "facts": result}, ensure_ascii=False)  # a word of earlier versions
            write_atomically(self._path(number), text)
        except FileNotFoundError as error:
            fix = "let it end, then run this one again"
            raise UserError(f"{self.folder}: another command works in this folder; {fix}") from error
        return json.loads(text)["facts"]

    def done(self, number: int) -> Optional[Dict[str, Any]]:
        """Return the result of a shard that an earlier run has made; None for one that must be made."""
        try:
            known = json.loads(self._path(number).read_text(encoding="utf-8"))
            if all((self.folder / name).stat().st_size == size for name, size in known["sizes"].items()):
                return known["facts"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass
        return None

    def _path(self, number: int) -> Path:
        return self.folder / WORK_FOLDER / self.name / f"{number:06d}.json"


# Makes the files of a shard, each under a temporary name that is changed when it is complete. Returns their names,
# relative to the step's folder, and a result that JSON can express.
MakeShard = Callable[[Shard], Tuple[List[str], Dict[str, Any]]]


class Workers(NamedTuple):
    """Where shards are made, how many at the same time, and who says why none is made at the moment."""

    executor: Executor
    at_once: int = 1
    obstacle: Callable[[], str] = str


class ThisProcess(Executor):
    def submit(self, function: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*arguments, **keywords))
        return future


ALONE = Workers(ThisProcess())


def run_shards(
    workers: Workers, step: Step, make: MakeShard, shards: Iterable[Shard], progress: tqdm
) -> Iterator[Tuple[int, Dict[str, Any]]]:
    """Make all shards that are not done yet; yield the number and the result of each one, in any order.

    Only a few shards for each worker are taken at a time, to keep a long input out of memory. What makes them is a
    module's function, or ``functools.partial`` of one.
    """
    waiting = iter(shards)
    running: Dict[Future[Dict[str, Any]], Shard] = {}
    try:
        while True:
            for shard in waiting:
                result = step.done(shard.number)
                if result is not None:
                    progress.initial += shard.size  # which the rate ignores
                    progress.update(shard.size)
                    yield shard.number, result
                    continue
                running[workers.executor.submit(_make, step, make, shard)] = shard._replace(content=None)
                if len(running) >= SHARDS_PER_WORKER * workers.at_once or workers.at_once == 1:
                    break
            if not running:
                return
            for future in _completed(running, workers):
                shard, result = running.pop(future), future.result()
                progress.update(shard.size)
                yield shard.number, result
    except BrokenProcessPool as error:  # the user's error: a shard that takes too much memory would take it again
        raise UserError(f"a worker process ended (out of memory?); use fewer --workers, and {RUN_AGAIN}") from error
    finally:
        for future in running:
            future.cancel()


def _completed(running: Iterable[Future[Any]], workers: Workers) -> Iterable[Future[Any]]:
    """Wait for at least one; log from time to time why it takes so long, if that is known."""
    while True:
        done = wait(running, WAIT_SECONDS, FIRST_COMPLETED).done
        if done:
            return done
        obstacle = workers.obstacle()
        if obstacle:
            logger.warning(obstacle)


def _make(step: Step, make: MakeShard, shard: Shard) -> Dict[str, Any]:
    names, result = make(shard)
    return step.finish(shard.number, names, result)
