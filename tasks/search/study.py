"""A search with Optuna: its study, its loop, and its results as a table and as the config of the best trial."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
from pathlib import Path
from typing import IO, Iterator, List

import optuna
from optuna.study import MaxTrialsCallback, StudyDirection
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from reports.compare import Row, Table, aligned
from reports.templating import number
from settings.fields import ResumePolicy, value_at
from settings.loading import load_config
from settings.problems import show
from settings.schema import leaves
from tasks import task_class
from tasks.own_data import read_classes
from tasks.search.space import SET_BY_SEARCH, check_space, flag, plain, read_space
from tasks.search.trials import FailedTrialError, Search
from utilities.errors import UserError
from utilities.files import write_atomically
from utilities.metric_names import is_loss
from utilities.secrets import mask_value

STUDY, BEST = "study.db", "best.json"
MOST_FAILURES = 3  # failed trials in a row that end the search


def run_search(options: argparse.Namespace, task: str, command: List[str]) -> List[str]:
    """Run trials until there are enough, and return lines with the results.

    Raises:
        UserError: the command, the space or the storage is wrong, or several trials in a row failed.
        KeyboardInterrupt: the search was stopped; the same command resumes it.
    """
    config = load_config(task, command[1:], read_classes).config
    if config.seeds is not None:
        raise UserError("seeds: a trial is one run; remove seeds, and train the best config with them afterwards")
    space = read_space(options.space)
    check_space(space, str(options.space), task, command[1:])
    if options.metric is not None and config.evaluation.every is not None:
        command.append(flag("evaluation.metric", options.metric))
    scores = task_class(task).metrics(config)
    metric = options.metric or config.evaluation.metric or scores[0]
    if metric not in scores:
        raise UserError(f"--metric {metric}: the task has no such score; name one of {', '.join(scores)}")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with locked(options.output) as lock, storage_errors():
        study = optuna.create_study(
            storage=options.storage or f"sqlite:///{options.output / STUDY}",
            study_name=options.output.resolve().name,
            direction="minimize" if is_loss(metric) else "maximize",
            pruner=optuna.pruners.NopPruner() if options.no_pruning else optuna.pruners.MedianPruner(),
            load_if_exists=True,
        )
        study.sampler = optuna.samplers.TPESampler(seed=(config.seed + len(study.trials)) % 2**32)
        search = Search(command, config, space, metric, options.output, study, lock.fileno())
        check_same_search(search)
        search.repeat_killed_trials()
        counted = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING)
        if len(study.get_trials(states=counted)) < options.trials:
            enough = MaxTrialsCallback(options.trials, counted)
            study.optimize(
                search.run,
                catch=FailedTrialError,
                callbacks=[lambda study, trial: print_outcome(search, task, trial), enough, Failures()],
            )
        return results(search, task)


def print_outcome(search: Search, task: str, trial: FrozenTrial) -> None:
    """Print how a trial ended, and write the config of the best one so far."""
    error = trial.user_attrs.get("error")
    print(f"  failed: {error}" if error else f"  {trial.state.name.lower()}: {trial.value}", flush=True)
    results(search, task)


class Failures:
    """A callback of Optuna that ends the search after several failed trials in a row."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Count a trial.

        Raises:
            UserError: too many failed.
        """
        error = trial.user_attrs.get("error")
        self._count = self._count + 1 if error else 0
        if self._count == MOST_FAILURES:
            raise UserError(f"{self._count} trials in a row failed, the last one: {error}")


def locked(folder: Path) -> IO[str]:
    """Create a folder, and lock it until the returned file is closed, here and in the trial that inherits it.

    Raises:
        UserError: another search has locked it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = open(folder / ".lock", "a", encoding="utf-8")  # noqa: SIM115 (closed by the caller)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise UserError(
            f"--output: another search writes to {folder}, or the trial of one that was killed still saves its state;"
            " wait for it to end, or name another folder"
        ) from None
    return file


@contextlib.contextmanager
def storage_errors() -> Iterator[None]:
    """Within the block, turn an error of the study's storage into a line for the user."""
    try:
        yield
    except (SQLAlchemyError, optuna.exceptions.StorageInternalError, ImportError) as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(
            f"--storage: {reason}; correct the address, install its package, or repeat the command later"
        ) from error


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
    for name in {**own, **begun}:
        if own.get(name) != begun.get(name):
            before, now = show(begun.get(name)), show(own.get(name))
            raise UserError(
                f"{name} is {now} and was {before} when the search began; set it back, or name a new --output"
            )
    known = {search.path(trial) for trial in search.study.trials}
    others = [path for path in sorted(search.folder.glob("trial-*")) if path.is_dir() and path not in known]
    if others:
        raise UserError(f"--output: {others[0]} is a trial of another search; name a new folder")


def results(search: Search, task: str) -> List[str]:
    """Write the config of the best trial, and return a table of all trials, the best first, as lines."""
    sign = 1 if search.study.direction == StudyDirection.MINIMIZE else -1
    complete = [trial for trial in search.study.trials if trial.state == TrialState.COMPLETE]
    complete.sort(key=lambda trial: sign * (trial.value or 0.0))
    trials = [*complete, *(trial for trial in search.study.trials if trial.state != TrialState.COMPLETE)]
    rows = []
    for trial in trials:
        cells = [number(plain(trial.params[name])) if name in trial.params else None for name in search.space]
        score, error = None if trial.value is None else number(trial.value), trial.user_attrs.get("error")
        state = f"failed: {error}" if error else trial.state.name.lower()
        rows.append(Row(search.path(trial).name, (score, *cells, state)))
    lines = ["", *aligned(Table("", rows), [search.metric, *search.space, "state"]), ""]
    if not complete:
        return lines
    best = complete[0]
    about = f"{search.path(best)}: {search.metric} {number(best.value)}, the best of {len(trials)} trials"
    values = [flag(name, plain(value)) for name, value in best.params.items()]
    config = load_config(task, [*search.command[1:], *values]).config.model_dump(mode="json", exclude={"extends"})
    kept = {name: value for name, value in mask_value(config).items() if name not in ("name", "resume")}
    path = write_atomically(search.folder / BEST, json.dumps({**kept, "about": about}, indent=2) + "\n")
    return [*lines, f"best: {about}", f"its config: {path}"]
