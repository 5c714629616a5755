"""One run for each of several seeds, and the mean and deviation of their scores.

Fine-tuning on small data sets depends on the seed, so results are published over several (Devlin et al. 2019, section
4.1, choose the best of several restarts on the validation set).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import json
import logging
import statistics
import time
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence

from execution.software.cluster.processes import Processes
from keras_extensions.backend import keras
from keras_extensions.callbacks.progress import run_log
from keras_extensions.callbacks.signals import StopRequest
from training.run_folder import RunFolder
from training.task import MakeTask
from training.together import ended_together, processes_of, run_folder
from training.trainer import platform_of, train
from training.unchanged import refuse_differences
from utilities.config.loading import LoadedConfig
from utilities.config.schema import TrainingConfig
from utilities.errors import ReplicaLostError, Stopped, UserError

logger = logging.getLogger(__name__)

SUMMARY = "seeds"
Scores = Mapping[int, Mapping[str, float]]


def train_with_seeds(loaded: LoadedConfig, make_task: MakeTask, started: float) -> None:
    """Train and evaluate once, or once for each of the config's ``seeds``.

    With several, the run's folder holds a run folder for each, and ``seeds.json`` and ``seeds.txt`` with all scores,
    their mean, and their deviation (of a sample: divided by the number of seeds less one). With ``resume``, seeds that
    have ended are not trained again.

    Args:
        loaded, make_task, started: see :func:`training.trainer.train`.
    """
    config = loaded.config
    if config.seeds is None:
        train(loaded, make_task, started)
        return
    with contextlib.ExitStack() as held:
        train_each(loaded, config.seeds, make_task, started, held)


def train_each(
    loaded: LoadedConfig, seeds: Sequence[int], make_task: MakeTask, started: float, held: contextlib.ExitStack
) -> None:
    """Train and evaluate once for each seed.

    Args:
        held: is closed when all have ended.
    """
    config, processes = loaded.config, processes_of(loaded.config)
    held.enter_context(ended_together(processes, StopRequest(), lambda: None))
    if not processes.is_alone:
        platform_of(config, processes)  # joins them
    folder = run_folder(processes, lambda: folder_of(config), held)
    processes.goes_on_as(folder.path.name)
    scores: Dict[int, Dict[str, float]] = {}
    for number, seed in enumerate(seeds, start=1):
        one = with_seed(loaded, seed, folder.path)
        done = processes.decided(functools.partial(scores_of_finished, one.config))
        how = "" if done is None else ", has ended before"
        if processes.is_chief:
            tell(folder, config, [f"seed {seed}, {number} of {len(seeds)}{how}"])
        scores[seed] = train_one(one, make_task, started, folder, processes) if done is None else done
        started = time.perf_counter()
        if any(scores.values()) and processes.is_chief:  # others have no scores of the seeds that they train with
            write_summary(folder, scores)
    if any(scores.values()) and processes.is_chief:
        tell(folder, config, [*table(scores), f"scores of all seeds: {folder.path / f'{SUMMARY}.txt'}"])


def folder_of(config: TrainingConfig) -> RunFolder:
    """The folder for the runs of all seeds: a new one, or the one to go on with.

    Raises:
        UserError: there is none to go on with.
    """
    if not config.resume:
        return RunFolder.create(config.output_dir, str(config.name))
    path = Path(config.output_dir) / str(config.name)
    if not path.is_dir():
        raise UserError(f"resume: there is no run {path}; give the --name of one, or leave out --resume")
    return RunFolder(path)


def with_seed(loaded: LoadedConfig, seed: int, folder: Path) -> LoadedConfig:
    """The config of one seed's run, whose folder lies in ``folder``, and its checkpoints in one of the same name."""
    config = loaded.config
    name = f"{config.name}-seed-{seed}"
    changes: Dict[str, Any] = {"seed": seed, "seeds": None, "name": name, "output_dir": str(folder)}
    changes["resume"] = config.resume and (folder / name).is_dir()
    if config.save_ckpt_path is not None:
        changes["save_ckpt_path"] = str(Path(config.save_ckpt_path) / name)
    origins = {**loaded.origins, **dict.fromkeys(changes, "seeds")}
    return dataclasses.replace(loaded, config=config.model_copy(update=changes), origins=origins)


def scores_of_finished(config: TrainingConfig) -> Optional[Dict[str, float]]:
    """The scores of a seed's run that has ended; None where it has not.

    Raises:
        UserError: it was another config's.
    """
    run = RunFolder(Path(config.output_dir) / str(config.name))
    if not run.path.is_dir() or not run.history.finished:
        return None
    refuse_differences(config, run.recorded_config() or {}, str(run.path))
    path = run.path / "scores.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def train_one(
    loaded: LoadedConfig, make_task: MakeTask, started: float, folder: RunFolder, processes: Processes
) -> Dict[str, float]:
    """Train and evaluate with one seed.

    Raises:
        Stopped: someone asked for it; with the name under which all seeds go on.
        ReplicaLostError: another process is gone; with that name, too.
    """
    try:
        return train(loaded, make_task, started, processes)
    except Stopped as stop:
        raise Stopped(str(stop), folder.path.name, stop.told) from None
    except ReplicaLostError as error:
        raise ReplicaLostError(error.lost, error.index, folder.path.name) from error
    finally:
        keras.backend.clear_session()  # the model of one seed is not to stay in memory beside the next one's
        gc.collect()


def tell(folder: RunFolder, config: TrainingConfig, lines: Iterable[str]) -> None:
    """Log lines as a run does, into a log of all seeds."""
    with run_log(folder.path / "train.log", config.logging):
        for line in lines:
            logger.info(line)


def write_summary(folder: RunFolder, scores: Scores) -> None:
    """The table as text, and its numbers as JSON."""
    of_metric = {metric: [one[metric] for one in scores.values()] for metric in metrics_of(scores)}
    summary = {
        "seeds": {str(seed): dict(one) for seed, one in scores.items()},
        "mean": {metric: statistics.mean(values) for metric, values in of_metric.items()},
        "deviation": {metric: deviation(values) for metric, values in of_metric.items()},
    }
    folder.write(f"{SUMMARY}.json", summary)
    text = "".join(line + "\n" for line in table(scores))
    (folder.path / f"{SUMMARY}.txt").write_text(text, encoding="utf-8")


def table(scores: Scores) -> List[str]:
    """A line for each seed, then mean and deviation.

    Example:
        >>> print(*table({1: {"accuracy": 0.5}, 2: {"accuracy": 0.75}}), sep="\\n")
        seed       accuracy
        1            0.5000
        2            0.7500
        mean         0.6250
        deviation    0.1768
    """
    metrics = metrics_of(scores)
    of_metric = [[one[metric] for one in scores.values()] for metric in metrics]
    rows = [(str(seed), [one[metric] for metric in metrics]) for seed, one in scores.items()]
    rows.append(("mean", [statistics.mean(values) for values in of_metric]))
    rows.append(("deviation", [deviation(values) for values in of_metric]))
    widths = [max(10, len(metric) + 2) for metric in metrics]
    first = max(len(name) for name, _ in rows)
    lines = ["seed".ljust(first) + "".join(metric.rjust(width) for metric, width in zip(metrics, widths))]
    for name, values in rows:
        lines.append(name.ljust(first) + "".join(f"{value:.4f}".rjust(width) for value, width in zip(values, widths)))
    return lines


def metrics_of(scores: Scores) -> List[str]:
    """Names of the scores, which all seeds share."""
    return list(next(iter(scores.values())))


def deviation(values: Sequence[float]) -> float:
    """Standard deviation of a sample; 0 of one value."""
    return statistics.stdev(values) if len(values) > 1 else 0.0
