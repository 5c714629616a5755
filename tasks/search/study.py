"""A search with Optuna: its study, its loop, and its results as a table and as the config of the best trial."""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import time
import warnings
from typing import Any, Dict, Iterator, List

import optuna
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback, fail_stale_trials
from optuna.study import MaxTrialsCallback, StudyDirection
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from execution.software.cluster.lifeline import SECONDS_TO_STOP
from reports.compare import Row, Table, text_lines
from reports.run_files import is_number, read_run_folder
from reports.templating import number
from settings.loading import load_config
from settings.problems import show
from tasks import task_class
from tasks.own_data import read_classes
from tasks.search.space import SET_BY_SEARCH, check_space, flag, plain, read_space
from tasks.search.trials import FailedTrialError, Search
from training.run_folder import config_for_files
from training.same_config import differences_by_field
from utilities.errors import UserError
from utilities.files import write_atomically
from utilities.metric_names import is_loss

STUDY, BEST = "study.db", "best.json"
MOST_FAILURES = 3  # failed trials in a row that end the search
SECONDS_TO_CREATE = 2  # tables of a new database
# A trial without a heartbeat for so long is repeated. By then its run has saved its state and ended.
HEARTBEAT_SECONDS, GRACE_SECONDS = 10, round(SECONDS_TO_STOP) + 15


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
    options.output.mkdir(parents=True, exist_ok=True)
    with storage_errors(), warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # heartbeats
        storage = open_storage(options.storage or f"sqlite:///{options.output / STUDY}")
        # The folder's own database has one study, whose name stays when the folder is renamed.
        known = [] if options.storage else optuna.get_all_study_names(storage)
        study = optuna.create_study(
            storage=storage,
            study_name=known[0] if known else options.output.resolve().name,
            direction="minimize" if is_loss(metric) else "maximize",
            pruner=optuna.pruners.NopPruner() if options.no_pruning else optuna.pruners.MedianPruner(),
            load_if_exists=True,
        )
        study.sampler = optuna.samplers.TPESampler(seed=(config.seed + len(study.trials)) % 2**32)
        search = Search(command, config, space, metric, options.output)
        check_same_search(search, study)
        enqueue_killed_trials(study)
        counted = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING)
        if len(study.get_trials(states=counted)) < options.trials:
            outcome = lambda study, trial: print_outcome(search, task, study, trial)  # noqa: E731
            enough = MaxTrialsCallback(options.trials, counted)
            study.optimize(search.run, catch=FailedTrialError, callbacks=[outcome, enough, stop_after_failures])
        return results(search, task, study)


def open_storage(address: str) -> RDBStorage:
    """Open or create a database of studies; try again if another search is creating it at the same moment."""
    make = functools.partial(
        RDBStorage,
        address,
        heartbeat_interval=HEARTBEAT_SECONDS,
        grace_period=GRACE_SECONDS,
        heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(),
    )
    try:
        return make()
    except SQLAlchemyError:
        time.sleep(SECONDS_TO_CREATE)
        return make()


def enqueue_killed_trials(study: optuna.Study) -> None:
    """Wait until Optuna has enqueued the trials again whose search was killed, which it knows by their heartbeats."""
    for second in range(GRACE_SECONDS + 1):
        fail_stale_trials(study)
        if not study.get_trials(states=(TrialState.RUNNING,)):
            return
        if second == 0:
            print(f"waiting for {GRACE_SECONDS} s: a trial runs elsewhere, or its search was killed", flush=True)
        time.sleep(1)


def print_outcome(search: Search, task: str, study: optuna.Study, trial: FrozenTrial) -> None:
    """Print how a trial ended, and write the config of the best one so far."""
    error = trial.user_attrs.get("error")
    print(f"  failed: {error}" if error else f"  {trial.state.name.lower()}: {trial.value}", flush=True)
    results(search, task, study)


def stop_after_failures(study: optuna.Study, trial: FrozenTrial) -> None:
    """End the search after several failed trials in a row.

    Raises:
        UserError: the last ones failed.
    """
    ended = [each for each in study.trials if each.state.is_finished()]
    errors = [each.user_attrs.get("error") for each in ended[-MOST_FAILURES:]]
    if len(errors) == MOST_FAILURES and all(errors):
        raise UserError(f"{MOST_FAILURES} trials in a row failed, the last one: {errors[-1]}")


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


def check_same_search(search: Search, study: optuna.Study) -> None:
    """Record the config, space and metric of a new study; compare those of a study that was begun before.

    Raises:
        UserError: they differ, or the folder has trials of another study.
    """
    space = {name: optuna.distributions.distribution_to_json(values) for name, values in search.space.items()}
    own: Dict[str, Any] = {"config": config_for_files(search.config), "metric": search.metric, "space": space}
    begun = study.user_attrs.get("settings")
    if begun is None:
        study.set_user_attr("settings", own)
        begun = own
    changed = [
        f"--{name} is {show(own[name])} and was {show(begun[name])}"
        for name in ("metric", "space")
        if own[name] != begun[name]
    ]
    varied = (*search.space, *SET_BY_SEARCH)
    fields = differences_by_field(search.config, begun["config"])
    changed += [text for name, text in fields.items() if name not in varied]
    if changed:
        raise UserError(f"{changed[0]} when the search began; set it back, or name a new --output")
    known = {search.path(trial) for trial in study.trials}
    others = [path for path in sorted(search.folder.glob("trial-*")) if path.is_dir() and path not in known]
    if others:
        raise UserError(f"--output: {others[0]} is a trial of another search; name a new folder")


def results(search: Search, task: str, study: optuna.Study) -> List[str]:
    """Write the config of the best trial, and return a table of all trials, the best first, as lines."""
    sign = 1 if study.direction == StudyDirection.MINIMIZE else -1
    complete = [trial for trial in study.trials if trial.state == TrialState.COMPLETE]
    complete.sort(key=lambda trial: sign * (trial.value or 0.0))
    trials = [*complete, *(trial for trial in study.trials if trial.state != TrialState.COMPLETE)]
    rows = []
    for trial in trials:
        cells = [number(plain(trial.params[name])) if name in trial.params else None for name in search.space]
        score, error = None if trial.value is None else number(trial.value), trial.user_attrs.get("error")
        state = f"failed: {error}" if error else trial.state.name.lower()
        rows.append(Row(search.path(trial).name, (score, *cells, state)))
    lines = ["", *text_lines(Table("", rows), [search.metric, *search.space, "state"]), ""]
    if not complete:
        return lines
    best = complete[0]
    about = f"{search.path(best)}: {search.metric} {number(best.value)}, the best of {len(trials)} trials"
    values = [flag(name, plain(value)) for name, value in best.params.items()]
    config = config_for_files(load_config(task, [*search.command[1:], *values]).config)
    kept = {name: value for name, value in config.items() if name not in ("name", "resume")}
    path = write_atomically(search.folder / BEST, json.dumps({**kept, "about": about}, indent=2) + "\n")
    return [*lines, f"best: {about}", *baseline_lines(search, best), f"its config: {path}"]


def baseline_lines(search: Search, best: FrozenTrial) -> List[str]:
    """Return the score of predictions that do not read the texts, if the best trial's run has it, and what it means."""
    folder = search.path(best)
    baseline = read_run_folder(folder).baseline.get(search.metric) if folder.is_dir() else None
    if not is_number(baseline):
        return []
    about = f"baseline: {search.metric} {number(baseline)} without reading the texts (most frequent class, or mean)"
    assert best.value is not None, "it is complete"
    if (best.value < baseline) if is_loss(search.metric) else (best.value > baseline):
        return [about]
    return [f"{about}; no trial is better: train longer, or search other fields or wider ranges"]
