"""The trials of a search: each is the training command with values for some fields, in a process of its own.

So its memory is freed when it ends, a crash does not end the search, and its result is that of the command. The search
follows the evaluations in the trial's ``metrics.jsonl``, and stops a trial that Optuna prunes as Ctrl-C would.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, NamedTuple

import optuna
from optuna.storages import RetryHeartbeatStaleTrialCallback
from optuna.trial import FrozenTrial

from execution.launch import lifeline, signals_passed_on, start
from execution.software.cluster.lifeline import LIFELINE, lifeline_variable
from reports.run_files import is_number
from settings.schema import TrainingConfig
from tasks.search.space import Distribution, flag, plain, suggest
from utilities.files import read_json_object, read_steps
from utilities.history import History
from utilities.run_names import METRICS, RESOLVED, SCORES
from utilities.secrets import shown_line

SECONDS_BETWEEN_CHECKS = 1.0
SECONDS_BETWEEN_LINES = 15.0


class FailedTrialError(Exception):
    """The training command failed; the search goes on."""


class Search(NamedTuple):
    """What the trials of a search have in common; :meth:`run` is Optuna's objective.

    Attributes:
        command: the training command: its script and flags.
        config: its config.
        space: the distribution of each field that is searched.
        metric: the score to search for.
        folder: the folder of the trials' runs.
    """

    command: List[str]
    config: TrainingConfig
    space: Dict[str, Distribution]
    metric: str
    folder: Path

    def path(self, trial: FrozenTrial) -> Path:
        """Return the run folder of a trial: that of the killed trial that it repeats."""
        first = RetryHeartbeatStaleTrialCallback.retried_trial_number(trial)
        return self.folder / f"trial-{trial.number if first is None else first:04}"

    def run(self, trial: optuna.Trial) -> float:
        """Run or resume a trial, and return its score.

        Raises:
            TrialPruned: Optuna pruned it.
            FailedTrialError: the command failed.
            KeyboardInterrupt: this process received a signal, which it passed on; the trial is enqueued again.
        """
        path = self.path(stored(trial))
        for name, distribution in self.space.items():
            suggest(trial, name, distribution)
        values = {name: plain(value) for name, value in trial.params.items()}
        print(f"{path.name}: {', '.join(f'{name} {value}' for name, value in values.items())}", flush=True)
        if not History(path).finished:
            self._train(trial, path, values)
        self._should_prune(trial, path)
        fix = "a search needs runs with do_validation and data to evaluate on"
        score = read_json_object(path / SCORES, fix=fix).get(self.metric)
        if not is_number(score):
            raise self._failure(trial, f"{self.metric} is {score}, not a number")
        return float(score)

    def _should_prune(self, trial: optuna.Trial, path: Path) -> bool:
        """Report new evaluations, numbered, and return whether the trial should end before its last update."""
        rows = [row for row in read_steps(path / METRICS) if isinstance(row.get("evaluation"), dict)]
        reported = len(stored(trial).intermediate_values)
        for index, row in enumerate(rows[reported:], reported):
            score = row["evaluation"].get(self.metric)
            trial.report(float(score) if is_number(score) else math.nan, index)
        return bool(rows) and rows[-1]["step"] < rows[-1].get("total_steps", 0) and trial.should_prune()

    def _train(self, trial: optuna.Trial, path: Path, values: Dict[str, Any]) -> None:
        if path.is_dir() and not (path / RESOLVED).exists():
            shutil.rmtree(path)  # killed while it was made, so it could not be resumed
        settings = {**values, "name": path.name, "output_dir": str(self.folder), "resume": False}
        if self.config.save_ckpt_path is not None:
            settings["save_ckpt_path"] = str(Path(self.config.save_ckpt_path) / self.folder.name / path.name)
        command = [sys.executable, *self.command, *(flag(name, value) for name, value in settings.items())]
        log, is_pruned = path.with_suffix(".log"), False
        processes: List[subprocess.Popen] = []
        with open(log, "ab") as output, lifeline() as reader, signals_passed_on(processes) as received:
            environment = {**os.environ, LIFELINE: lifeline_variable(reader)}
            process = start(command, environment, [reader], output)
            processes.append(process)
            shown = time.monotonic()
            while process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(SECONDS_BETWEEN_CHECKS)
                if time.monotonic() - shown >= SECONDS_BETWEEN_LINES:
                    shown = time.monotonic()
                    print(f"  {progress_line(path)}", flush=True)
                if not is_pruned and process.poll() is None and self._should_prune(trial, path):
                    is_pruned = True
                    process.terminate()  # which saves the state of the run
        if received:
            RetryHeartbeatStaleTrialCallback()(trial.study, stored(trial))
            raise KeyboardInterrupt
        if is_pruned:
            raise optuna.TrialPruned
        if process.returncode:
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            errors = [line[len("error: ") :] for line in lines if line.startswith("error: ")]
            error = errors[-1] if errors else f"exit status {process.returncode}, see {log}"
            raise self._failure(trial, error)

    def _failure(self, trial: optuna.Trial, error: str) -> FailedTrialError:
        error = shown_line(error)
        trial.set_user_attr("error", error)
        return FailedTrialError(error)


def progress_line(path: Path) -> str:
    """Return how far a trial's run is."""
    rows = [row for row in read_steps(path / METRICS) if "total_steps" in row]
    if not rows:
        return f"{path.name} begins; its log is {path.with_suffix('.log')}"
    last = rows[-1]
    values = last.get("evaluation") or last.get("metrics") or {}
    shown = ", ".join(f"{name} {value:.4f}" for name, value in values.items() if is_number(value))
    return f"{path.name}: step {last['step']} of {last['total_steps']}, {shown}"


def stored(trial: optuna.Trial) -> FrozenTrial:
    """Return the trial as the study's storage has it now."""
    return trial.study.trials[trial.number]
