"""Packing: several short sequences in one of full length, instead of padding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from data_utils.packing.plan import ALGORITHMS, PackingPlan, plan_packing

if TYPE_CHECKING:
    from data_utils.packing.dataset import pack_dataset

__all__ = ["ALGORITHMS", "PackingPlan", "pack_dataset", "plan_packing"]


def __getattr__(name: str) -> Any:
    """``pack_dataset`` is imported when asked for: planning, and training on packs, need nothing of it."""
    if name == "pack_dataset":
        from data_utils.packing.dataset import pack_dataset

        return pack_dataset
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
