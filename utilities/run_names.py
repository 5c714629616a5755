"""The names of a run's folder and of files in it, which are part of what users and other programs rely on."""

from __future__ import annotations

from typing import Optional, Tuple

from utilities.secrets import mask

METRICS, SCORES = "metrics.jsonl", "scores.json"
RESOLVED, DATASET = "resolved_config.json", "dataset.json"
LOG = "train.log"
CHECKPOINT_LIST = "checkpoints.json"  # written after each checkpoint


def name_problem(name: str) -> Optional[Tuple[str, str]]:
    """Return why a run's folder cannot have a name, and what to do; None if it can."""
    if name in (".", "..") or any(c in "/\\:" or ord(c) < 32 for c in name):
        return "the run's folder has this name", r"use a name without / \ : and control characters"
    if mask(name) != name:
        return "it contains a secret, which messages mask", "use a name without it"
    if len(name.encode("utf-8")) > 200:
        return "it is too long for a folder's name", "use a name of at most 200 bytes"
    return None
