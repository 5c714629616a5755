"""Refuses a checkpoint that is not there, or that was trained for another task, before TensorFlow is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

from checkpoints.folder import find_checkpoint
from checkpoints.pretrained.naming import check_exists, stated_task
from model.tasks import CLASSIFICATION, PRETRAINING, SQUAD, TASKS, TOKEN_CLASSIFICATION
from utilities.errors import UserError

HEADS = (CLASSIFICATION, TOKEN_CLASSIFICATION, SQUAD)  # tasks whose heads have the names of another task's
MASKED_LM_FIX = f"name a run of {TASKS[PRETRAINING].program}, a BertForPreTraining or a BertForMaskedLM"


def check_named(checkpoint: str, key: str, task: Optional[str]) -> None:
    """Check what a checkpoint's name and description say; messages name the flag or function ``key``."""
    check_exists(checkpoint, key)
    path = Path(checkpoint)
    trained = stated_task(path)
    if trained is None or trained not in TASKS or trained == task:
        return
    if task in HEADS:
        raise UserError(other_head(str(find_checkpoint(path, key).folder), f"of {trained}", key, task))
    if task == PRETRAINING:
        origin = find_checkpoint(path, key).folder
        raise UserError(f"{key}: {origin} has no masked-LM head (it was trained for {trained}); {MASKED_LM_FIX}")


def check_answers(checkpoint: str, key: str) -> None:
    """Check that a checkpoint, as far as its description says, was trained for a task with a head."""
    check_exists(checkpoint, key)
    path = Path(checkpoint)
    trained = stated_task(path)
    if trained is not None and trained in TASKS and trained not in HEADS:
        raise UserError(without_head(str(find_checkpoint(path, key).folder), trained, key))


def other_head(origin: str, what: str, key: str, task: str) -> str:
    """Return the message about a checkpoint, ``what`` it is, that is not of the task."""
    fix = f"name a {TASKS[task].hugging_face}, or fine-tune it with {TASKS[task].program}"
    return f"{key}: {origin} is {what}, not of {task}; {fix}"


def without_head(origin: str, trained: str, key: str) -> str:
    """Return the message about a checkpoint of a task whose models classify nothing."""
    return f"{key}: {origin} was trained for {trained}; fine-tune it with {TASKS[CLASSIFICATION].program} first"
