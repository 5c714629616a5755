"""What a trained classifier says of its outputs: whether they are classes, labels or a number, and their names."""

from __future__ import annotations

import logging
import re
from typing import Any, List, Mapping, Optional

import numpy as np

from checkpoints.pretrained.pretrained import Pretrained
from data_utils.classification.benchmarks import TASKS
from data_utils.classification.tasks import BenchmarkTask
from model.tasks import MULTI_LABEL, REGRESSION, SINGLE_LABEL
from training.initial_weights import InitialWeights
from utilities.errors import UserError

logger = logging.getLogger(__name__)

CLASSIFIER = "classifier.weight"
MULTIPLE_CHOICE = "BertForMultipleChoice"  # Hugging Face's class, whose classifier compares samples
KINDS = {
    SINGLE_LABEL: "one class of each sample",
    MULTI_LABEL: "several labels of a sample",
    REGRESSION: "a number",
    MULTIPLE_CHOICE: "a choice among samples",
}
_NUMBERED = re.compile(r"label_\d+")  # Hugging Face's names of classes without a name


def class_order(start: Optional[InitialWeights], benchmark: BenchmarkTask) -> Optional[np.ndarray]:
    """Return the output for each of the task's classes of a model that is evaluated without training.

    Other projects' models number the classes differently; ``id2label`` in their settings gives their names.

    Returns:
        ``(classes,)`` output numbers; None if they are, as far as known, in the task's order.

    Raises:
        UserError: the checkpoint has no classifier, so its answers would be random, or one of another kind.
    """
    if not isinstance(start, Pretrained):
        return None
    if CLASSIFIER not in start.weights:
        raise UserError(
            f"{start.origin} has no classifier, so its scores would be random; train first (--do-training true), or"
            " name a checkpoint of classification"
        )
    check_kind(start, benchmark)
    if start.own:
        trained = (start.settings.get("config") or {}).get("glue_task")
        if trained not in (None, benchmark.name):
            logger.warning("%s was trained for %s, not for %s", start.origin, trained, benchmark.name)
    names = class_names(start.settings)
    if benchmark.is_regression or names is None:
        return None
    order = matched(names, benchmark)
    if order is None:
        shown = ", ".join(names[:8])
        logger.warning(
            "%s calls its classes %s; they are assumed to be in the order of %s", start.origin, shown, benchmark.name
        )
        return None
    return None if order == list(range(len(order))) else np.array(order)


def check_kind(start: Pretrained, benchmark: BenchmarkTask) -> None:
    """Refuse a classifier whose outputs mean something else than the task's; warn if labels are asked of an unknown."""
    asked = MULTI_LABEL if benchmark.is_multi_label else REGRESSION if benchmark.is_regression else SINGLE_LABEL
    kind = classifier_kind(start.settings)
    if kind is None and asked == MULTI_LABEL:
        logger.warning("%s does not say that its classes are labels (problem_type); it is assumed", start.origin)
    if kind in KINDS and kind != asked:
        raise UserError(
            f"{start.origin} was trained for {KINDS[kind]}, not for {KINDS[asked]}; name a checkpoint of this kind, or"
            " train first (--do-training true)"
        )
    activation = (start.settings.get("sentence_transformers") or {}).get("activation_fn")
    activation = activation or start.settings.get("sbert_ce_default_activation_function")
    if isinstance(activation, str) and not activation.endswith("Identity"):
        raise UserError(f"{start.origin}: its config.json asks for {activation}, which is not applied to its outputs")


def classifier_kind(settings: Mapping[str, Any]) -> Optional[str]:
    """Return what a classifier says, by Hugging Face's name (``problem_type``); None if its settings do not say it."""
    config = settings.get("config") or {}
    own, benchmark = config.get("classification_data"), TASKS.get(config.get("glue_task") or "")
    if own is not None:
        is_set, is_number = own.get("label_separator") is not None, own.get("regression")
    elif benchmark is not None:
        is_set, is_number = benchmark.is_multi_label, benchmark.is_regression
    else:
        is_choice = MULTIPLE_CHOICE in (settings.get("architectures") or ())
        return MULTIPLE_CHOICE if is_choice else settings.get("problem_type")
    return MULTI_LABEL if is_set else REGRESSION if is_number else SINGLE_LABEL


def class_names(settings: Mapping[str, Any]) -> Optional[List[str]]:
    """Return the names of a model's classes in the order of its outputs; None if they have no names.

    Args:
        settings: Hugging Face's, or the facts of a checkpoint of this project.
    """
    if settings.get("labels"):
        return list(settings["labels"])
    trained = TASKS.get((settings.get("config") or {}).get("glue_task") or "")
    if trained is not None and trained.labels:
        return [label.name for label in trained.labels]
    names = settings.get("id2label")
    if not isinstance(names, dict) or not all(str(number).isdecimal() for number in names):
        return None
    ordered = [str(names[number]) for number in sorted(names, key=int)]
    return None if all(_NUMBERED.fullmatch(name.lower()) for name in ordered) else ordered


def matched(names: List[str], benchmark: BenchmarkTask) -> Optional[List[int]]:
    """Return the index of each of the task's classes in ``names``; None unless each occurs once."""
    plain = [name.strip().lower() for name in names]
    indices = []
    for label in benchmark.labels:
        known = [number for number, name in enumerate(plain) if name in (label.value.lower(), label.name.lower())]
        if len(known) != 1:
            return None
        indices += known
    return indices if len(indices) == len(names) else None
