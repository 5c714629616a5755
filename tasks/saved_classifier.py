"""What a trained classifier says of its outputs: whether they are classes, labels or a number, and their names.

Outputs have names, so a head is continued, and its answers are read, by name: a task may number the same classes
differently.
"""

from __future__ import annotations

import logging
import re
from typing import Any, Collection, List, Mapping, Optional, Sequence

from checkpoints.pretrained.pretrained import Pretrained
from checkpoints.pretrained.sentence_transformers import embedding_prompt, is_cross_encoder, output_activation
from data_utils.classification.benchmarks import TASKS as BENCHMARK_TASKS
from data_utils.classification.tasks import USER, BenchmarkTask
from model.tasks import CLASSIFICATION, MULTI_LABEL, REGRESSION, SINGLE_LABEL, TASKS
from training.initial_weights import InitialWeights
from utilities.errors import UserError
from utilities.tables import listed

logger = logging.getLogger(__name__)

CLASSIFIER = "classifier.weight"
MULTIPLE_CHOICE = "BertForMultipleChoice"  # Hugging Face's class, whose classifier compares samples
KINDS = {
    SINGLE_LABEL: "one class of each sample",
    MULTI_LABEL: "several labels of a sample",
    REGRESSION: "a number",
    MULTIPLE_CHOICE: "a choice among samples",
}
PROGRAM = TASKS[CLASSIFICATION].program
SIGMOID = "Sigmoid"  # of the outputs of a cross-encoder
_NUMBERED = re.compile(r"label_\d+")  # Hugging Face's names of classes without a name


def class_rows(
    start: Optional[InitialWeights], benchmark: BenchmarkTask, trains: bool
) -> Optional[List[Optional[int]]]:
    """Return the row of a checkpoint's head for each of the task's classes; see :class:`training.task.Task`.

    If the head ``trains``, rows may begin anew.
    """
    if not isinstance(start, Pretrained):
        return None
    if not trains:
        check_evaluated(start, benchmark)
    if CLASSIFIER not in start.weights or benchmark.is_regression:
        return None
    ours = [label.name for label in benchmark.labels]
    theirs = output_names(start)
    rows = rows_by_name(theirs, [(label.value, label.name) for label in benchmark.labels])
    if any(row is not None for row in rows):
        if not trains and (None in rows or len(rows) < len(theirs)):
            named = "set classification_data.classes to those of the checkpoint"
            fix = named if benchmark.benchmark == USER else "name a checkpoint of these classes"
            raise UserError(
                f"{start.origin} has the classes {listed(theirs)}, this task {listed(ours)}; {fix}, or fine-tune it"
                f" first with {PROGRAM}"
            )
        report_rows(start, theirs, ours, rows)
        return rows
    is_named, is_as_large = class_names(start.settings) is not None, len(theirs) == len(ours)
    is_numbered = ours == [str(number) for number in range(len(ours))]
    if trains and is_named and not (is_as_large and is_numbered):
        report_rows(start, theirs, ours, rows)
        return rows
    if is_as_large and is_named:
        what = f"{start.origin} calls its classes {listed(theirs)}"
        logger.warning("%s; they are assumed to be in the order of %s", what, listed(ours))
    elif is_as_large and trains:
        logger.info("%s does not name its classes; they are taken, in order, as %s", start.origin, listed(ours))
    return None


def check_evaluated(start: Pretrained, benchmark: BenchmarkTask) -> None:
    """Refuse a checkpoint that is evaluated without training if its outputs are random or mean something else."""
    if CLASSIFIER not in start.weights:
        raise UserError(
            f"{start.origin} has no classifier, so its scores would be random; fine-tune it first with {PROGRAM}, or"
            " name a checkpoint of classification"
        )
    names = class_names(start.settings) or []
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(
            f"{start.origin}: two of its classes have the name {twice} (id2label); rename one in its config"
        )
    check_kind(start, benchmark)
    outputs = start.weights[CLASSIFIER].shape[0]
    if outputs != benchmark.classes and (benchmark.is_regression or class_names(start.settings) is None):
        what = f"{start.origin} has {outputs} output{'s' * (outputs > 1)}, this task {benchmark.classes}"
        raise UserError(f"{what}; name a checkpoint of this task, or fine-tune it first with {PROGRAM}")
    if start.native:
        trained = (start.settings.get("config") or {}).get("glue_task")
        if trained not in (None, benchmark.name):
            logger.warning("%s was trained for %s, not for %s", start.origin, trained, benchmark.name)


def report_rows(start: Pretrained, theirs: Sequence[str], ours: Sequence[str], rows: Sequence[Optional[int]]) -> None:
    """Log how the outputs of a head are continued, unless they are the same."""
    new = [name for name, row in zip(ours, rows) if row is None]
    left = [name for number, name in enumerate(theirs) if number not in rows]
    if len(new) == len(rows):
        what = f"{start.origin} has the classes {listed(theirs)}, none of which is one of {listed(ours)}"
        logger.warning("%s; the head begins anew", what)
    elif new or left:
        parts = (("begin anew", new), ("left out", left))
        shown = "; ".join(f"{what}: {listed(names)}" for what, names in parts if names)
        logger.warning("the head of %s is continued by the names of its classes; %s", start.origin, shown)
    elif list(rows) != list(range(len(rows))):
        logger.info("the classes of %s have another order there and are matched by name", start.origin)


def rows_by_name(theirs: Sequence[str], ours: Sequence[Collection[str]]) -> List[Optional[int]]:
    """Return the index in ``theirs`` of each output, which may have several names; capitals count only if needed."""
    if len(theirs) == len(ours) and all(name in names for name, names in zip(theirs, ours)):
        return list(range(len(ours)))
    exact, plain = [name.strip() for name in theirs], [name.strip().lower() for name in theirs]
    rows: List[Optional[int]] = []
    for names in ours:
        known = [number for number, name in enumerate(exact) if name in {each.strip() for each in names}]
        if not known:
            known = [number for number, name in enumerate(plain) if name in {each.strip().lower() for each in names}]
        rows.append(known[0] if len(known) == 1 else None)
    return rows


def check_kind(start: Pretrained, benchmark: BenchmarkTask) -> None:
    """Refuse a classifier whose outputs mean something else than the task's; warn if labels are asked of an unknown."""
    asked = MULTI_LABEL if benchmark.is_multi_label else REGRESSION if benchmark.is_regression else SINGLE_LABEL
    kind = classifier_kind(start.settings)
    if kind is None and asked == MULTI_LABEL:
        logger.warning("%s does not say that its classes are labels (problem_type); it is assumed", start.origin)
    if kind in KINDS and kind != asked:
        raise UserError(
            f"{start.origin} was trained for {KINDS[kind]}, not for {KINDS[asked]}; name a checkpoint of this kind, or"
            f" fine-tune it first with {PROGRAM}"
        )
    activation = output_activation(start)
    if activation not in ("Identity", *((SIGMOID,) if asked != SINGLE_LABEL else ())):
        raise UserError(f"{start.origin}: its files ask for {activation} of its outputs, which is not computed here")
    if is_cross_encoder(start) and embedding_prompt(start).text:
        raise UserError(f"{start.origin}: its files put a prompt before texts, which is done for embeddings only")


def classifier_kind(settings: Mapping[str, Any]) -> Optional[str]:
    """Return what a classifier says, by Hugging Face's name (``problem_type``); None if its settings do not say it."""
    config = settings.get("config") or {}
    data, benchmark = config.get("classification_data"), BENCHMARK_TASKS.get(config.get("glue_task") or "")
    if data is not None:
        is_set, is_number = data.get("label_separator") is not None, data.get("regression")
    elif benchmark is not None:
        is_set, is_number = benchmark.is_multi_label, benchmark.is_regression
    else:
        is_choice = MULTIPLE_CHOICE in (settings.get("architectures") or ())
        return MULTIPLE_CHOICE if is_choice else settings.get("problem_type")
    return MULTI_LABEL if is_set else REGRESSION if is_number else SINGLE_LABEL


def class_names(settings: Mapping[str, Any]) -> Optional[List[str]]:
    """Return a model's classes by Hugging Face's settings, or by our checkpoint's; None if they have no names."""
    if settings.get("labels"):
        return list(settings["labels"])
    trained = BENCHMARK_TASKS.get((settings.get("config") or {}).get("glue_task") or "")
    if trained is not None and trained.labels:
        return [label.name for label in trained.labels]
    names = settings.get("id2label")
    if not isinstance(names, dict) or not all(str(number).isdecimal() for number in names):
        return None
    ordered = [str(names[number]) for number in sorted(names, key=int)]
    return None if all(_NUMBERED.fullmatch(name.lower()) for name in ordered) else ordered


def output_names(start: Pretrained) -> List[str]:
    """Return the names of a model's outputs, which are ``LABEL_0`` and so on if it does not name them."""
    count, names = start.weights[CLASSIFIER].shape[0], class_names(start.settings)
    if names is not None and len(names) != count:
        raise UserError(
            f"{start.origin} has {count} outputs, but its config.json names {len(names)} classes (id2label); correct it"
        )
    return names or [f"LABEL_{number}" for number in range(count)]


def matched(names: List[str], benchmark: BenchmarkTask) -> bool:
    """Return whether the task's classes are those with these names, in any order."""
    rows = rows_by_name(names, [(label.value, label.name) for label in benchmark.labels])
    return None not in rows and len(set(rows)) == len(names)
