"""Trains one run per seed, and computes the mean and deviation of the scores.

Fine-tuning on small data sets depends on the seed, so results are published over several seeds (Devlin et al. 2019,
section 4.1, choose the best of several restarts on the validation set).
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import statistics
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional

from execution.processes import Processes
from keras_extensions.backend import free_models
from keras_extensions.listeners.progress import run_log
from keras_extensions.listeners.reporting import Period
from settings.loading import LoadedConfig
from settings.schema import TrainingConfig
from training.chief import shared_run_folder
from training.failures import process_failures
from training.machine import configured_platform, configured_processes
from training.run_folder import RESTORE, RunFolder
from training.same_config import check_same_config
from training.task import MakeTask
from training.trainer import Result, train_run
from utilities.errors import Stopped, UserError
from utilities.files import read_json_object, write_atomically
from utilities.run_names import LOG, SCORES

logger = logging.getLogger(__name__)

SUMMARY = "seeds"
Scores = Mapping[int, Mapping[str, float]]


def train_with_seeds(
    loaded: LoadedConfig, make_task: MakeTask, started: float, until: Optional[Callable[[Period], bool]] = None
) -> Optional[Result]:
    """Train and evaluate once, or once for each of the config's ``seeds``.

    With several seeds, the run's folder contains a run folder for each, and ``seeds.json`` and ``seeds.txt`` with all
    scores, their mean, and their sample standard deviation. With ``resume``, finished seeds are not trained again.

    Args:
        loaded, make_task, started, until: see :func:`training.trainer.train_run`.

    Returns:
        The result of the run; None with several seeds, whose models are freed one by one.
    """
    config = loaded.config
    processes = configured_processes(config)
    for note in loaded.notes if processes.is_chief else ():
        logger.warning(note)
    if config.seeds is None:
        return train_run(loaded, make_task, started, processes, until)
    with process_failures(processes):
        if not processes.is_single:
            configured_platform(config, processes)  # joins them
        with shared_run_folder(processes, lambda: seeds_folder(config)) as folder:
            processes.run_name = folder.path.name
            train_each_seed(loaded, make_task, started, folder, processes)
    return None


def train_each_seed(
    loaded: LoadedConfig, make_task: MakeTask, started: float, folder: RunFolder, processes: Processes
) -> None:
    """Train and evaluate once per seed, and write the summary of those with scores after each."""
    config = loaded.config
    scores: Dict[int, Dict[str, float]] = {}
    for number, seed in enumerate(config.seeds or (), start=1):
        loaded_seed = seed_config(loaded, seed, folder.path)
        finished = processes.decide(functools.partial(finished_scores, loaded_seed.config))
        note = "" if finished is None else ", already finished" if finished else ", already finished without scores"
        if processes.is_chief:
            log_lines(folder, config, [f"seed {seed}, {number} of {len(config.seeds or ())}{note}"])
        result = train_seed(loaded_seed, make_task, started, folder, processes) if finished is None else finished
        started = time.perf_counter()
        if result and processes.is_chief:
            scores[seed] = result
            write_summary(folder, scores)
    if scores:
        log_lines(folder, config, [*table(scores), f"scores of all seeds: {folder.path / f'{SUMMARY}.txt'}"])


def seeds_folder(config: TrainingConfig) -> RunFolder:
    """Return the folder for the runs of all seeds, either a new one or the one to resume.

    Raises:
        UserError: there is none to resume.
    """
    if not config.resume:
        return RunFolder.create(config.output_dir, str(config.name))
    path = Path(config.output_dir) / str(config.name)
    if not path.is_dir():
        raise UserError(f"resume: there is no run {path}; give the --name of one, or leave out --resume")
    return RunFolder(path)


def seed_config(loaded: LoadedConfig, seed: int, folder: Path) -> LoadedConfig:
    """Return the config of the run of one seed, whose folder is inside ``folder``."""
    config = loaded.config
    name = f"{folder.name}-seed-{seed}"  # the folder's, because the number in it is part of the name when it is resumed
    changes: Dict[str, Any] = {"seed": seed, "seeds": None, "name": name, "output_dir": str(folder)}
    changes["resume"] = config.resume and (folder / name).is_dir()
    if config.save_ckpt_path is not None:
        changes["save_ckpt_path"] = str(Path(config.save_ckpt_path) / name)
    origins = {**loaded.origins, **dict.fromkeys(changes, "seeds")}
    return dataclasses.replace(loaded, config=config.model_copy(update=changes), origins=origins)


def finished_scores(config: TrainingConfig) -> Optional[Dict[str, float]]:
    """Return the scores of a seed's finished run, empty without an evaluation; None if it is not finished.

    Raises:
        UserError: the run was made with another config.
    """
    run = RunFolder(Path(config.output_dir) / str(config.name))
    if not run.path.is_dir() or not run.history.finished:
        return None
    recorded = run.recorded_config()
    check_same_config(config, recorded, str(run.path))
    has_scores = recorded.get("do_validation", True) and not recorded.get("generated_dataset")
    return read_json_object(run.path / SCORES, "resume: ", RESTORE) if has_scores else {}


def train_seed(
    loaded: LoadedConfig, make_task: MakeTask, started: float, folder: RunFolder, processes: Processes
) -> Dict[str, float]:
    """Train and evaluate with one seed.

    Raises:
        Stopped: the run was asked to stop; the exception names the run of all seeds.
    """
    try:
        return train_run(loaded, make_task, started, processes).scores
    except Stopped as stop:
        stop.run = folder.path.name
        raise
    finally:
        free_models()


def log_lines(folder: RunFolder, config: TrainingConfig, lines: Iterable[str]) -> None:
    """Log lines to the console and to the log of all seeds."""
    with run_log(folder.path / LOG, config.logging):
        for line in lines:
            logger.info(line)


def write_summary(folder: RunFolder, scores: Scores) -> None:
    """Write the table as text and its numbers as JSON.

    Raises:
        UserError: the seeds do not have the same scores.
    """
    if len({frozenset(one) for one in scores.values()}) > 1:
        raise UserError(f"{folder.path}: the scores.json of its seeds do not have the same scores; {RESTORE}")
    folder.write(f"{SUMMARY}.json", summarize(scores))
    text = "".join(line + "\n" for line in table(scores))
    write_atomically(folder.path / f"{SUMMARY}.txt", text)


def summarize(scores: Scores) -> Dict[str, Any]:
    """Return the scores of all seeds, their mean, and their sample standard deviation (0 for a single seed)."""
    values = {metric: [one[metric] for one in scores.values()] for metric in next(iter(scores.values()))}
    return {
        "seeds": {str(seed): dict(one) for seed, one in scores.items()},
        "mean": {metric: statistics.mean(all_seeds) for metric, all_seeds in values.items()},
        "deviation": {
            metric: statistics.stdev(all_seeds) if len(all_seeds) > 1 else 0.0 for metric, all_seeds in values.items()
        },
    }


def table(scores: Scores) -> List[str]:
    """Return a line for each seed, then mean and deviation.

    Example:
        >>> print(*table({1: {"accuracy": 0.5}, 2: {"accuracy": 0.75}}), sep="\\n")
        seed       accuracy
        1            0.5000
        2            0.7500
        mean         0.6250
        deviation    0.1768
    """
    summary = summarize(scores)
    rows = {**summary["seeds"], "mean": summary["mean"], "deviation": summary["deviation"]}
    widths = {metric: max(10, len(metric) + 2) for metric in summary["mean"]}
    first = max(map(len, rows))
    lines = ["seed".ljust(first) + "".join(metric.rjust(width) for metric, width in widths.items())]
    for name, values in rows.items():
        cells = (f"{values[metric]:.4f}".rjust(width) for metric, width in widths.items())
        lines.append(name.ljust(first) + "".join(cells))
    return lines
