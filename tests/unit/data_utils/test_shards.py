"""Shards in this process and in processes: results, errors, lost workers."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from data_utils import shards
from data_utils.recipe import clear_work
from data_utils.shards import ALONE, Shard, Step, ThisProcess, Workers, run_shards
from data_utils.workers import open_workers
from utilities.errors import UserError
from utilities.files import PROJECT
from utilities.progress import progress_bar


def square(step: Step, shard: Shard) -> tuple[list[str], dict[str, Any]]:
    (step.folder / f"{shard.number}.txt").write_text(str(shard.content**2))
    return [f"{shard.number}.txt"], {"square": shard.content**2, "process": os.getpid()}


def fail(shard: Shard) -> tuple[list[str], dict[str, Any]]:
    if shard.number == 5:
        raise UserError("number 5 is broken; correct it")
    return [], {}


def die_once(mark: Path, shard: Shard) -> tuple[list[str], dict[str, Any]]:
    if shard.number == 2 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return [], {}


def numbers(count: int, taken: list[int] | None = None) -> Iterator[Shard]:
    for number in range(count):
        if taken is not None:
            taken.append(number)
        yield Shard(number, number, 1)


def run(workers: Workers, folder: Path, make: Any, items: Iterator[Shard]) -> Iterator[tuple[int, dict[str, Any]]]:
    return run_shards(workers, Step(folder, "step"), make, items, progress_bar(None, "step", "shards"))


def squares(workers: Workers, folder: Path, count: int) -> dict[int, int]:
    make = functools.partial(square, Step(folder, "step"))
    return {number: result["square"] for number, result in run(workers, folder, make, numbers(count))}


@pytest.fixture(scope="module")
def pair() -> Iterator[Workers]:
    with open_workers(2) as workers:
        yield workers


def test_two_workers_take_shards_as_needed(pair: Workers, tmp_path: Path) -> None:
    assert squares(pair, tmp_path, 50) == {n: n * n for n in range(50)}
    taken: list[int] = []
    make = functools.partial(square, Step(tmp_path / "b", "step"))
    (tmp_path / "b").mkdir()
    results = run(pair, tmp_path / "b", make, numbers(1000, taken))
    _, result = next(results)
    assert result["process"] != os.getpid()
    assert len(taken) <= 10
    results.close()


def test_one_worker_is_this_process(tmp_path: Path) -> None:
    make = functools.partial(square, Step(tmp_path, "step"))
    with open_workers(1) as workers:
        results = [result for _, result in run(workers, tmp_path, make, numbers(3))]
    assert {result["process"] for result in results} == {os.getpid()}


def test_shards_that_are_done_are_not_made_again(tmp_path: Path) -> None:
    assert squares(ALONE, tmp_path, 4) == {0: 0, 1: 1, 2: 4, 3: 9}
    (tmp_path / "1.txt").write_text("longer")  # not the size that stands beside it
    (tmp_path / "2.txt").unlink()
    (tmp_path / ".work" / "step" / "000003.json").write_text("{")
    made: list[int] = []

    def noted(shard: Shard) -> tuple[list[str], dict[str, Any]]:
        made.append(shard.number)
        return square(Step(tmp_path, "step"), shard)

    assert len(list(run(ALONE, tmp_path, noted, numbers(4)))) == 4
    assert made == [1, 2, 3]
    clear_work(tmp_path)
    assert Step(tmp_path, "step").done(0) is None


def test_a_shard_that_an_earlier_version_made_is_done(tmp_path: Path) -> None:
    (tmp_path / "0.txt").write_text("1")
    (tmp_path / ".work" / "step").mkdir(parents=True)
    (tmp_path / ".work" / "step" / "000000.json").write_text('{"sizes": {"0.txt": 1}, "facts": {"square": 1}}')
    assert Step(tmp_path, "step").done(0) == {"square": 1}


def test_two_commands_in_one_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="another command works in this folder; let it end"):
        Step(tmp_path, "step").finish(0, ["deleted.txt"], {})


def test_an_error_of_the_work_is_raised(pair: Workers, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="number 5 is broken; correct it"):
        list(run(pair, tmp_path, fail, numbers(10)))
    assert squares(pair, tmp_path / "..", 3)  # and the workers are still alive


def test_a_lost_worker_ends_the_command_which_goes_on_when_it_is_run_again(tmp_path: Path) -> None:
    make = functools.partial(die_once, tmp_path / "mark")
    with open_workers(2) as workers, pytest.raises(UserError, match=r"fewer --workers, and run the command again"):
        list(run(workers, tmp_path, make, numbers(9)))
    with open_workers(2) as workers:
        assert sorted(number for number, _ in run(workers, tmp_path, make, numbers(9))) == list(range(9))


def test_waiting_for_workers_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setattr(shards, "WAIT_SECONDS", 0.05)
    future: Future[Any] = Future()
    asked: list[int] = []

    def obstacle() -> str:
        asked.append(len(asked))
        if len(asked) == 3:
            future.set_result({})
        return "" if len(asked) == 1 else "no worker is connected"

    class Slow(ThisProcess):
        def submit(self, *_: Any, **__: Any) -> Future[Any]:
            return future

    assert len(list(run(Workers(Slow(), 1, obstacle), tmp_path, square, numbers(1)))) == 1
    assert caplog.text.count("no worker is connected") == 2


@pytest.mark.parametrize("module", ["module", "__main__"])
def test_workers_of_a_command_in_a_package_warn_of_nothing(tmp_path: Path, module: str) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / f"{module}.py").write_text(
        "from data_utils.workers import open_workers\n"
        "def main():\n"
        "    with open_workers(2) as workers:\n"
        "        print(*workers.executor.map(abs, [-1, -2]))\n"
        "if __name__ == '__main__':\n"
        "    main()\n"
    )
    command = [sys.executable, "-m", "package" if module == "__main__" else f"package.{module}"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(PROJECT)])}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=True)
    assert (result.stdout, result.stderr) == ("1 2\n", "")
