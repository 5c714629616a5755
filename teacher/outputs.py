"""A teacher's outputs, which a smaller model learns: computed once, and kept for all runs on the same texts.

Hinton et al. 2015 (arXiv 1503.02531); for BERT, Turc et al. 2019 (arXiv 1908.08962). The teacher is a trained
classifier with a vocabulary and a longest sequence of its own.

N samples · C classes
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import json
import logging
import os
import time
import zipfile
from pathlib import Path
from typing import Iterator, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from checkpoints.pretrained.opening import open_pretrained
from checkpoints.pretrained.pretrained import Pretrained
from data_utils.classification.features import Features, report_truncation
from data_utils.classification.tasks import BenchmarkTask
from model.tasks import CLASSIFICATION
from settings.schema import TrainingConfig
from tasks.answering import Model, restored_model, trained_task
from tasks.saved_classifier import CLASSIFIER, check_kind, class_names, matched
from teacher.identity import KEY
from utilities.errors import UserError
from utilities.files import replacing
from utilities.progress import waiting
from utilities.tables import listed

logger = logging.getLogger(__name__)


class Taught(NamedTuple):
    """A teacher's logits (N, C) float32, and a SHA-256 of all that decides them: weights and texts."""

    logits: np.ndarray
    origin: str
    identity: str
    path: Path


def teacher_outputs(config: TrainingConfig, benchmark: BenchmarkTask, texts: Sequence[Tuple[str, ...]]) -> Taught:
    """Return what the config's teacher answers to texts, from a file in ``output_dir`` if it has answered before."""
    assert config.distillation.teacher is not None
    start = open_pretrained(config.distillation.teacher, KEY)
    check_teacher(start, benchmark)
    own = config.classification_data
    data = None if own is None else own.model_dump()
    model = restored_model(start, CLASSIFICATION, glue_task=config.glue_task, classification_data=data)
    inputs = model.answering.encoded(texts)
    count, length = inputs.arrays["input_ids"].shape
    report_truncation(f"for the teacher {start.origin}", count, inputs, length)
    identity = teacher_identity(start, benchmark, inputs)
    path = Path(config.output_dir) / f"teacher-{identity[:16]}.npz"
    with one_at_a_time(path.parent):
        logits = read_logits(path, (count, benchmark.classes))
        if logits is None:
            logits = computed_logits(model, inputs, path)
        else:
            logger.info("what the teacher answers is read from %s", path)
    return Taught(logits, start.origin, identity, path)


def check_teacher(start: Pretrained, benchmark: BenchmarkTask) -> None:
    """Refuse a checkpoint that does not classify texts into the task's classes; warn if its classes have no names."""
    if CLASSIFIER not in start.weights or trained_task(start) not in (None, CLASSIFICATION):
        raise UserError(f"{KEY}: {start.origin} is no trained classifier of texts; name one of this task")
    check_kind(start, benchmark)
    names = None if benchmark.is_regression else class_names(start.settings)
    outputs = start.weights[CLASSIFIER].shape[0]
    if outputs != benchmark.classes or (names is not None and not matched(names, benchmark)):
        theirs = f"{outputs} output{'s' * (outputs > 1)}" if names is None else f"the classes {listed(names)}"
        ours = listed(label.name for label in benchmark.labels) or "a number"
        raise UserError(f"{KEY}: {start.origin} has {theirs}, this task {ours}; name a teacher of the same classes")
    if names is None and not benchmark.is_regression:
        order = listed(label.name for label in benchmark.labels)
        logger.warning("%s does not name its classes; they are assumed to be, in order, %s", start.origin, order)


def teacher_identity(start: Pretrained, benchmark: BenchmarkTask, inputs: Features) -> str:
    """Return a SHA-256 of the teacher's weights, its options and classes, and its inputs."""
    classes = class_names(start.settings), [label.name for label in benchmark.labels]
    digest = hashlib.sha256(json.dumps([classes, start.architecture], sort_keys=True, default=str).encode("utf-8"))
    weights = ((name, start.weights[name].value()) for name in sorted(start.weights))  # one in memory at a time
    for name, values in itertools.chain(weights, sorted(inputs.arrays.items())):
        digest.update(repr((name, values.shape)).encode("utf-8"))
        digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()


def computed_logits(model: Model, inputs: Features, path: Path) -> np.ndarray:
    """Return the outputs of the teacher, and keep them in a file if it can be written."""
    count, begun = len(inputs.lengths), time.monotonic()
    logger.info("the teacher answers %s texts, once", f"{count:,}")
    with model.call(count, path.name) as call:
        logits: np.ndarray = model.answering.logits_of(call, inputs)
    logger.info("the teacher has answered after %.0f s; kept in %s", time.monotonic() - begun, path)
    try:
        with replacing(path) as stream:
            np.savez(stream, logits=logits)
    except OSError as error:
        logger.warning("%s cannot be written (%s); another run computes it again", path, error.strerror)
    return logits


def read_logits(path: Path, shape: Tuple[int, int]) -> Optional[np.ndarray]:
    """Return the outputs in a file; None if there are none, or they are damaged: the file has checksums."""
    try:
        with np.load(path, allow_pickle=False) as file:
            logits: np.ndarray = file["logits"]
            if logits.shape != shape or logits.dtype != np.float32:
                raise ValueError(f"{logits.shape} {logits.dtype} instead of {shape} float32")
            return logits
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        logger.warning("%s is damaged (%s) and computed again", path, error)
        return None


@contextlib.contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Within the block, other processes wait that would compute the same, where the file system has locks."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            with waiting("waiting for another command, which asks a teacher"):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
