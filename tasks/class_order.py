"""Whether the classifier of a checkpoint means what a task means: its classes, and their order.

Models of other origins number the classes as they like; ``id2label`` in their settings says how.
"""

from __future__ import annotations

import logging
import re
from typing import Any, List, Mapping, Optional

import numpy as np

from checkpoints.pretrained.pretrained import Pretrained
from data_utils.classification.tasks import BenchmarkTask
from training.start import Start
from utilities.errors import UserError

logger = logging.getLogger(__name__)

CLASSIFIER = "classifier.weight"
_NUMBERED = re.compile(r"label_\d+")  # what Hugging Face writes where nobody named the classes


def class_order(start: Optional[Start], benchmark: BenchmarkTask) -> Optional[np.ndarray]:
    """For a model that is evaluated as it was loaded: which of its outputs is each of the task's classes.

    Returns:
        ``(classes,)`` output numbers; None where they stand in the task's order, as far as anything tells.

    Raises:
        UserError: the checkpoint has no classifier, so that its answers would be random.
    """
    if not isinstance(start, Pretrained):
        return None
    if CLASSIFIER not in start.weights:
        raise UserError(
            f"{start.origin} has no classifier, so its scores would be random; train first (--do-training true), or"
            " name a checkpoint of classification"
        )
    if start.own:
        trained = (start.settings.get("config") or {}).get("glue_task")
        if trained not in (None, benchmark.name):
            logger.warning("%s was trained for %s, not for %s", start.origin, trained, benchmark.name)
        return None
    names = class_names(start.settings)
    if benchmark.is_regression or names is None:
        return None
    order = matched(names, benchmark)
    if order is None:
        told = ", ".join(names[:8])
        logger.warning("%s calls its classes %s; they are taken in the order of %s", start.origin, told, benchmark.name)
        return None
    return None if order == list(range(len(order))) else np.array(order)


def class_names(settings: Mapping[str, Any]) -> Optional[List[str]]:
    """The names of a model's classes in the order of its outputs; None where nobody named them."""
    names = settings.get("id2label")
    if not isinstance(names, dict) or not all(str(number).isdecimal() for number in names):
        return None
    ordered = [str(names[number]) for number in sorted(names, key=int)]
    return None if all(_NUMBERED.fullmatch(name.lower()) for name in ordered) else ordered


def matched(names: List[str], benchmark: BenchmarkTask) -> Optional[List[int]]:
    """For each class of the task its place among ``names``; None unless each has one."""
    plain = [name.strip().lower() for name in names]
    places = []
    for label in benchmark.labels:
        known = [number for number, name in enumerate(plain) if name in (label.value.lower(), label.name.lower())]
        if len(known) != 1:
            return None
        places += known
    return places if len(places) == len(names) else None
