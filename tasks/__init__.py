"""The tasks: one file each, with data, model, losses, metrics, evaluation and outputs.

``model.tasks.TASKS`` is their registry, with what configs, plans and checkpoints need to know about a task
before its model is built. The class of a task is ``TASK`` in ``tasks/<name>.py``.

To add a fine-tuning task: read its data in ``data_utils``, derive its class from :class:`tasks.fine_tuning.FineTuning`,
add a row to the registry, and write a script like ``run_squad.py`` and a config.
"""

from __future__ import annotations

import importlib
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional, Sequence, Tuple, Union

from pydantic import ValidationError

from execution.software.cluster.membership import read_membership  # room: cluster
from model.tasks import TASKS
from reports.run_files import BASELINE
from settings.config_files import ConfigSource
from settings.loading import LoadedConfig, resolve_call
from settings.schema import TrainingConfig
from tasks.user_data import read_classes
from utilities.errors import UserError
from utilities.files import write_atomically
from utilities.progress import waiting
from utilities.validation import first_problem

if TYPE_CHECKING:  # imports TensorFlow
    from keras_extensions.listeners.reporting import Period
    from tasks.answering import Model
    from training.initial_weights import InitialWeights
    from training.task import BuiltModel
    from training.trainer import Result


def task_class(name: str) -> Any:
    """Return the class of a task by its name; it is a :data:`training.task.MakeTask`."""
    assert name in TASKS, f"{name} is not one of {', '.join(TASKS)}"
    return importlib.import_module(f"tasks.{name}").TASK


def check_metric(config: TrainingConfig, task: str) -> None:
    """Refuse an ``evaluation.metric`` that the task does not have; only if one is set, TensorFlow loads."""
    metric = config.evaluation.metric
    if metric is not None:
        names = task_class(task).metrics(config)
        if metric not in names:
            raise UserError(f"evaluation.metric is {metric}; set it to one of {', '.join(names)}")


def started_processes() -> Tuple[int, int]:
    """Return how many processes train together, and the number of this one, as the environment has them."""
    processes = (1, 0)
    processes = read_membership().numbers  # room: cluster
    return processes


def train(
    task: str,
    config: Union[ConfigSource, Sequence[ConfigSource]],
    /,
    until: Optional[Callable[[Period], bool]] = None,
    **overrides: Any,
) -> Result:
    """Train and evaluate in this process, as the command of the task does.

    In the main thread, an interrupt during the training saves the state and raises :class:`utilities.errors.Stopped`,
    which is a ``KeyboardInterrupt``. The same call with a ``name`` among its overrides resumes the run. In another
    thread a run cannot be interrupted. Calls in several threads must not overlap. A call seeds the random numbers of
    Python, NumPy and TensorFlow.

    Only the commands train in several processes, and have ``--plan`` and ``--schema``.

    Args:
        task: ``pretraining``, ``squad``, ``classification``, ``token_classification`` or ``sentence_embedding``.
        config: a config: its path, its values as a dict, or an object; or a list of a config and overlays.
        until: called after each logging period; if it returns True, the run is saved and stops as by a signal.
        overrides: values that take precedence, such as ``seed=1``, ``evaluation={"every": "epoch"}`` or
            ``**{"optimizer_opts.name": "LAMB"}``; they are checked as those of the flags are.

    Returns:
        The run's folder, scores, history and model. Its memory is freed once nothing refers to it, at the latest by the
        next call.

    Example:
        >>> result = train("pretraining", "configs/pretraining/pretrain_tiny_128_speedrun.json", dataset_dir="data/128")
        >>> result.model.save_weights("weights.h5")
    """
    started = time.perf_counter()
    loaded = resolve_call(task, config, overrides, read_classes)
    check_metric(loaded.config, task)
    processes, _ = started_processes()
    if processes > 1:
        raise UserError(f"this is one of {processes} processes; start them with {TASKS[task].program}")
    from keras_extensions.backend import free_models

    free_models()  # of results that the caller has dropped
    try:
        return run_config(loaded, started, until)
    finally:
        free_models()


def run_config(loaded: LoadedConfig, started: float, until: Optional[Callable[[Period], bool]] = None) -> Result:
    """Train and evaluate, for commands and :func:`train`; ``started`` is ``time.perf_counter()`` at the beginning."""
    # TensorFlow is imported after this, so that plans and errors of the config and of paths appear at once.
    loaded = _prepared(loaded)
    with waiting("loading TensorFlow"):
        from training.trainer import train_run

        task = task_class(loaded.task)
    return train_run(loaded, task, started, until)


def _prepared(loaded: LoadedConfig) -> LoadedConfig:
    """Check the paths of a run, and fit its rows to the data; of several processes, the chief reports what is wrong."""
    from tasks.fitted_rows import fitted
    from tasks.planned_files import check_paths

    processes, _ = started_processes()
    if processes == 1:
        check_paths(loaded.config, loaded.task)
    try:
        with waiting("reading the data"):
            return fitted(loaded, fetch=True)
    except UserError:
        if processes == 1:
            raise
        return loaded


def write_baseline(folder: Path, scores: Mapping[str, float]) -> None:
    """Write what predictions that do not read the texts score into a run's folder; no file if there are no scores."""
    if scores:
        write_atomically(folder / BASELINE, json.dumps(scores, indent=2) + "\n")


def prediction_config(precision: str = "float32", **settings: Any) -> TrainingConfig:
    """Return the config of a model that is restored to predict; ``settings`` are fields of it."""
    fixed = {
        "do_training": False,
        "do_validation": False,
        "embedding_serialization_factor": 1,
        "execution": {"platform": "software", "precision": precision, "xla": False},
    }
    try:
        return TrainingConfig.model_validate({**settings, **fixed})
    except ValidationError as error:
        raise UserError(f"{first_problem(error)}; correct it") from error


def restore_task(start: InitialWeights, name: str, config: TrainingConfig) -> Tuple[Any, BuiltModel]:
    """Return a task and its model with a checkpoint's weights; the config is from :func:`prediction_config`."""
    with waiting("reading the model"):
        from execution.select import select_platform
        from training.initial_weights import refuse_random_weights, resolved_architecture
        from training.machine import prediction_options

        architecture = resolved_architecture(config, start)
        task = task_class(name)(config, architecture, start)
        platform = select_platform(prediction_options(config, architecture))
        built = task.build(platform, lambda source: start.set_initial_weights(source, task.head_rows))
    refuse_random_weights(start, allowed=False)
    return task, built


def load(
    checkpoint: str,
    task: Optional[str] = None,
    *,
    vocab_file: Optional[str] = None,
    max_seq_length: Optional[int] = None,
    pooling: Optional[str] = None,
    prompt: Optional[str] = None,
    normalize: bool = False,
    precision: str = "float32",
) -> Model:
    """Return a trained model, which is called with a text, a pair of texts as a tuple, or a list of these.

    Args:
        checkpoint: a run's folder (its best checkpoint is taken, or else the newest), a checkpoint, or a folder of
            Hugging Face or sentence-transformers.
        task: name of the task, needed only if the checkpoint does not say it.
        vocab_file: ``vocab.txt`` or ``tokenizer.json``; by default that of the checkpoint.
        max_seq_length: tokens of a text at most; by default as in training.
        pooling, prompt, normalize: how a text becomes an embedding, see ``python -m tasks.embed --help``.
        precision: ``float32``, or ``bfloat16``, which some processors compute faster, with three digits.
    """
    from tasks.named_models import check_named

    check_named(checkpoint, "load", task)
    with waiting("loading TensorFlow"):
        from tasks.answering import load_model
    return load_model(
        checkpoint,
        "load",
        task,
        vocab_file=vocab_file,
        max_seq_length=max_seq_length,
        pooling=pooling,
        prompt=prompt,
        normalize=normalize,
        precision=precision,
    )
