"""Real training processes that are killed with SIGKILL at random moments and resumed by the same command.

After every kill, all checkpoints must be complete, and at most the steps since the last one may be lost. In the end,
weights, optimizer and logged losses must equal those of an uninterrupted run to the bit.
"""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from checkpoints.folder import UNFINISHED, damage, parse_step, step_folders
from tests import ROOT
from tests.support.runs import assert_same_run, logged, write_config, write_dataset
from training.run_folder import RunFolder

PATIENCE = 600  # timeout in seconds

# A checkpoint after every step, and one step per execution, so a checkpoint is being written most of the time.
EVERY_STEP = {"global_batches_per_log": 1, "ckpt_every_n_steps_per_execution": 1}

# The moments of kills, used in turn.
STARTING, STEPPING, WRITING = "while starting", "between steps", "while a checkpoint is written"
LONGEST = 20  # maximum number of steps of a process
MOMENTS = (WRITING, STEPPING, STARTING, WRITING, STEPPING)


class Experiment(NamedTuple):
    """The folder, the config of all runs, and the uninterrupted run with its seconds to the first step."""

    folder: Path
    config: Path
    whole: Path
    seconds_to_first_step: float


def prepare(folder: Path, updates: int) -> Experiment:
    """Write data and config, and train without a kill."""
    config = write_config(folder / "crash.json", write_dataset(folder / "data"), updates, **EVERY_STEP)
    whole = folder / "runs" / "whole"
    started = time.monotonic()
    process = start(config, whole)
    wait_for(lambda: steps_logged(whole) > 0, process)
    seconds = time.monotonic() - started
    assert process.wait(PATIENCE) == 0, (folder / "whole.out").read_text()
    assert logged(whole)[-1]["step"] == updates
    return Experiment(folder, config, whole, seconds)


def start(config: Path, run: Path) -> subprocess.Popen:
    """Start the training process of a run; the same command starts and resumes it."""
    arguments = ["--config", str(config), "--output-dir", str(run.parent), "--name", run.name]
    with open(run.parent.parent / f"{run.name}.out", "a") as output:
        return subprocess.Popen(
            [sys.executable, "run_pretraining.py", *arguments], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT
        )


def wait_for(event: Callable[[], bool], process: subprocess.Popen) -> bool:
    """Wait until something has happened; return False if the process ended before."""
    end = time.monotonic() + PATIENCE
    while not event():
        if process.poll() is not None:
            return False
        assert time.monotonic() < end, "nothing happens"
        time.sleep(0.0005)
    return True


def steps_logged(run: Path) -> int:
    try:
        return (run / "metrics.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def newest_step(run: Path) -> int:
    """Return the updates done at the last checkpoint; 0 without one."""
    return max(map(parse_step, step_folders(run / "checkpoints")), default=0)


def is_writing(run: Path, since: float) -> bool:
    """Return whether the process that began at ``since`` is writing a checkpoint; older ones do not count."""
    for path in (run / "checkpoints").glob(f"{UNFINISHED}step-*"):
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime > since:
                return True
    return False


def kill_once(experiment: Experiment, run: Path, moment: str, chance: random.Random) -> bool:
    """Start or resume a run and kill it; return False if it ended first."""
    goal = newest_step(run) + chance.randrange(1, LONGEST)
    since = time.time()
    process = start(experiment.config, run)
    try:
        if moment == STARTING:
            ended = not sleeps(process, chance.uniform(0, experiment.seconds_to_first_step))
        else:
            ended = not wait_for(lambda: newest_step(run) >= goal, process)
            if moment == WRITING:
                ended = ended or not wait_for(lambda: is_writing(run, since), process)
            ended = ended or not sleeps(process, chance.uniform(0, 0.02))
    finally:
        process.send_signal(signal.SIGKILL)
        status = process.wait(PATIENCE)
    assert status == (0 if ended else -signal.SIGKILL), (experiment.folder / f"{run.name}.out").read_text()[-2000:]
    check_what_is_left(run)
    return not ended


def sleeps(process: subprocess.Popen, seconds: float) -> bool:
    """Let a process run for this time; return False if it ended first."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return True
    return False


def check_what_is_left(run: Path) -> None:
    """Check that only complete checkpoints exist, and that at most the steps since the last one are lost.

    While the checkpoint of step s is being written, step s + 1 is trained; its save waits for the previous one.
    """
    assert all(damage(folder) is None for folder in step_folders(run / "checkpoints"))
    assert newest_step(run) >= RunFolder(run).last_step() - 2


def finish(experiment: Experiment, run: Path) -> None:
    """Let a run end, and compare it with the uninterrupted one."""
    assert start(experiment.config, run).wait(PATIENCE) == 0, (experiment.folder / f"{run.name}.out").read_text()[
        -2000:
    ]
    assert_same_run(run, experiment.whole)


def crash(experiment: Experiment, kills: int, seed: int, log: Callable[[str], None] = print) -> None:
    """Kill runs ``kills`` times; compare each one that ends in between, and start the next."""
    chance = random.Random(seed)
    number = done = 0
    while done < kills:
        number += 1
        run = experiment.folder / "runs" / f"crash-{number}"
        while done < kills:
            moment = MOMENTS[done % len(MOMENTS)]
            if not kill_once(experiment, run, moment, chance):
                break
            done += 1
            log(f"kill {done:2d} {moment}; the newest checkpoint is that of step {newest_step(run)}")
        finish(experiment, run)
        log(f"{run.name} is the run that nobody killed, to the bit")
