"""A plan on disk: ``packing_plan.json``, beside the packs that were made with it."""

from __future__ import annotations

import json
from pathlib import Path

from data_utils.packing.plan import PackingPlan
from data_utils.records.writer import write_atomically
from utilities.errors import UserError

PLAN_NAME = "packing_plan.json"


def write_plan(folder: Path, plan: PackingPlan) -> None:
    """Writes the plan, one kind of pack a line: how often, and the lengths of its sequences."""
    kinds = ",\n    ".join(json.dumps([times, list(pack)]) for pack, times in zip(plan.packs, plan.repeats))
    text = (
        f'{{\n  "max_sequence_length": {plan.max_sequence_length},\n  "fewest_packs": {plan.fewest_packs},\n'
        f'  "packs": [\n    {kinds}\n  ]\n}}\n'
    )
    write_atomically(folder / PLAN_NAME, text.encode())


def read_plan(folder: Path) -> PackingPlan:
    """The plan of a folder of packs.

    Raises:
        UserError: it has none that can be read.
    """
    path = folder / PLAN_NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return PackingPlan(
            packs=tuple(tuple(lengths) for _, lengths in content["packs"]),
            repeats=tuple(times for times, _ in content["packs"]),
            max_sequence_length=content["max_sequence_length"],
            fewest_packs=content["fewest_packs"],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: cannot be read as a plan ({error}); pack the data set again") from error
