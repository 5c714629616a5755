"""The trials of a search: each is the training command with values for some fields, in a process of its own.

So its memory is freed when it ends, a crash does not end the search, and its result is that of the command. The search
follows the evaluations in the trial's ``metrics.jsonl``, and stops a trial that Optuna prunes as Ctrl-C would.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

import optuna
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from execution.launch import lifeline, signals_passed_on, start
from execution.software.cluster.lifeline import LIFELINE, lifeline_variable
from reports.html import number
from reports.run_files import is_number
from settings.fields import ResumePolicy, value_at
from settings.problems import show
from settings.schema import TrainingConfig, leaves
from tasks.search.space import SET_BY_SEARCH, Space, flag, suggest
from utilities.errors import UserError
from utilities.files import read_json_object, read_steps
from utilities.history import History
from utilities.metric_names import is_loss
from utilities.secrets import mask_value

SECONDS_BETWEEN_CHECKS = 1.0
DONE = (TrialState.COMPLETE, TrialState.PRUNED)


@dataclasses.dataclass(frozen=True)
class Search:
    """What the trials of a search have in common.

    Attributes:
        command: the training command: its script and flags.
        config: its config.
        metric: the score to search for.
        folder: the folder of the trials' runs.
        lock: file descriptor of the folder's lock. Trials inherit it, so that a killed search is not repeated while
            its last trial still saves its state.
    """

    command: List[str]
    config: TrainingConfig
    space: Space
    metric: str
    folder: Path
    study: optuna.Study
    storage: optuna.storages.BaseStorage
    lock: int

    @property
    def owner(self) -> str:
        """The folder, as the trials of a study that several machines share name it."""
        return f"{socket.gethostname()}:{self.folder.resolve()}"

    def owned(self) -> List[FrozenTrial]:
        """Return the trials of this folder; without a note, a search was killed before it could add one."""
        return [each for each in self.study.trials if each.user_attrs.get("folder", self.owner) == self.owner]

    def path(self, trial_number: int) -> Path:
        """Return the run folder of a trial."""
        return self.folder / f"trial-{trial_number:04}"


def open_storage(url: str) -> optuna.storages.BaseStorage:
    """Open the database of studies, which is created if it is an SQLite file that does not exist.

    Raises:
        UserError: the Python package for such databases is not installed.
    """
    try:
        return optuna.storages.RDBStorage(url)
    except ImportError as error:
        raise UserError(
            "--storage: the Python package for such a database is not installed; install it, for example"
            " psycopg2-binary for PostgreSQL"
        ) from error


def open_study(storage: optuna.storages.BaseStorage, name: str, metric: str, prunes: bool) -> optuna.Study:
    """Return a study, which may have been begun before; of losses, the lowest is best."""
    return optuna.create_study(
        storage=storage,
        study_name=name,
        direction="minimize" if is_loss(metric) else "maximize",
        pruner=optuna.pruners.MedianPruner() if prunes else optuna.pruners.NopPruner(),
        load_if_exists=True,
    )


@contextlib.contextmanager
def storage_errors() -> Iterator[None]:
    """Within the block, turn an error of the study's storage into a line for the user."""
    try:
        yield
    except (SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"--storage: {reason}; correct the address, or repeat the command later") from error


def check_same_search(search: Search) -> None:
    """Record the config, space and metric of a new study; compare those of a study that was begun before.

    Raises:
        UserError: they differ, or the folder has trials of another study.
    """
    content, skipped = mask_value(search.config.model_dump(mode="json")), (*search.space, *SET_BY_SEARCH)
    fixed = {name: leaf for name, leaf in leaves().items() if leaf.resume_policy is ResumePolicy.FIXED}
    own = {name: value_at(content, leaf.path) for name, leaf in fixed.items() if name not in skipped}
    space = {name: optuna.distributions.distribution_to_json(values) for name, values in search.space.items()}
    own = {**own, "--metric": search.metric, "--space": space}
    begun = search.study.user_attrs.get("settings")
    if begun is None:
        search.study.set_user_attr("settings", own)
        begun = own
    for name in dict.fromkeys([*own, *begun]):
        if own.get(name) != begun.get(name):
            before, now = show(begun.get(name)), show(own.get(name))
            raise UserError(
                f"{name} is {now} and was {before} when the search began; set it back, or name a new --output"
            )
    known = {search.path(each.number) for each in search.owned()}
    others = [path for path in sorted(search.folder.glob("trial-*")) if path.is_dir() and path not in known]
    if others:
        raise UserError(f"--output: {others[0]} is a trial of another search; name a new folder")


def next_trial(search: Search, count: int) -> Optional[optuna.Trial]:
    """Return the interrupted trial, or a new one; None if ``count`` trials are completed, pruned or running."""
    study = search.study
    for each in search.owned():
        if each.state == TrialState.RUNNING:  # in no process, because the folder is locked
            study_id = search.storage.get_study_id_from_name(study.study_name)
            return optuna.Trial(study, search.storage.get_trial_id_from_study_id_trial_number(study_id, each.number))
    if len(study.get_trials(states=(*DONE, TrialState.RUNNING))) >= count:
        return None
    trial = study.ask()
    trial.set_user_attr("folder", search.owner)
    return trial


def run_trial(search: Search, trial: optuna.Trial) -> Optional[str]:
    """Run or resume a trial, and record its outcome; return the error of a failed one.

    Raises:
        UserError: the run has no such score.
        KeyboardInterrupt: the search was stopped; the trial will be resumed.
    """
    # The values are a function of the seed, the number and the earlier trials, also when the search is repeated.
    search.study.sampler = optuna.samplers.TPESampler(seed=(search.config.seed + trial.number) % 2**32)
    values = {name: suggest(trial, name, distribution) for name, distribution in search.space.items()}
    path = search.path(trial.number)
    print(f"{path.name}: {', '.join(f'{name} {number(value)}' for name, value in values.items())}", flush=True)
    evaluations = Evaluations(search, trial)
    error = None
    try:
        if not History(path).finished:
            error = train(search, path, values, evaluations)
        score = math.nan if error else read_score(path, search.metric)
        evaluations.report()
        if error is None and not math.isfinite(score):
            error = f"{search.metric} is {score}"
    except optuna.TrialPruned:
        search.study.tell(trial, state=TrialState.PRUNED)
        print(f"  pruned at {search.metric} {number(evaluations.last)}", flush=True)
        return None
    if error is not None:
        trial.set_user_attr("error", error)
        search.study.tell(trial, state=TrialState.FAIL)
        print(f"  failed: {error}", flush=True)
        return error
    search.study.tell(trial, score)
    print(f"  {search.metric} {number(score)}", flush=True)
    return None


class Evaluations:
    """Reports the evaluations of a run to Optuna, once each.

    They are numbered, because the updates between them depend on the batch.

    Attributes:
        last: the last score.
    """

    def __init__(self, search: Search, trial: optuna.Trial) -> None:
        self._trial, self._metric = trial, search.metric
        self._path = search.path(trial.number) / "metrics.jsonl"
        self._reported = set(search.study.trials[trial.number].intermediate_values)
        self.last = math.nan

    def report(self) -> bool:
        """Report new evaluations, and return whether the trial should be pruned before its last update."""
        rows = [row for row in read_steps(self._path) if isinstance(row.get("evaluation"), dict)]
        for index, row in enumerate(rows):
            score = row["evaluation"].get(self._metric)
            self.last = float(score) if is_number(score) else math.nan
            if index not in self._reported:
                self._trial.report(self.last, index)
                self._reported.add(index)
        return bool(rows) and rows[-1]["step"] < rows[-1].get("total_steps", 0) and self._trial.should_prune()


def train(search: Search, path: Path, values: Dict[str, Any], evaluations: Evaluations) -> Optional[str]:
    """Run the training command; return the error if it fails.

    Raises:
        TrialPruned: Optuna pruned the trial.
        KeyboardInterrupt: this process received a signal, which it passed on.
    """
    if evaluations.report():  # killed before it was recorded
        raise optuna.TrialPruned
    if path.is_dir() and not (path / "resolved_config.json").exists():
        shutil.rmtree(path)  # killed while it was made, so it could not be resumed
    settings = {**values, "name": path.name, "output_dir": str(search.folder), "resume": False}
    if search.config.save_ckpt_path is not None:
        settings["save_ckpt_path"] = str(Path(search.config.save_ckpt_path) / search.folder.name / path.name)
    command = [sys.executable, *search.command, *(flag(name, value) for name, value in settings.items())]
    log, is_pruned = path.with_suffix(".log"), False
    processes: List[subprocess.Popen] = []
    with open(log, "ab") as output, lifeline() as reader, signals_passed_on(processes) as received:
        environment = {**os.environ, LIFELINE: lifeline_variable(reader)}
        process = start(command, environment, [reader, search.lock], output)
        processes.append(process)
        while process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(SECONDS_BETWEEN_CHECKS)
            if not is_pruned and process.poll() is None and evaluations.report():
                is_pruned = True
                process.terminate()  # which saves the state of the run
    if received:
        raise KeyboardInterrupt
    if is_pruned:
        raise optuna.TrialPruned
    return last_error(log, process.returncode) if process.returncode else None


def last_error(log: Path, status: int) -> str:
    """Return the last error in the log of a process, or else its exit status."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    errors = [line[len("error: ") :] for line in lines if line.startswith("error: ")]
    return errors[-1] if errors else f"exit status {status}, see {log}"


def read_score(path: Path, metric: str) -> float:
    """Return the score of a run that has ended.

    Raises:
        UserError: the run has no such score.
    """
    scores = read_json_object(
        path / "scores.json", fix="a search needs runs with do_validation and data to evaluate on"
    )
    if metric not in scores:
        raise UserError(f"--metric: {path} has no score {metric}; name one of {', '.join(scores)}")
    return float(scores[metric])
