"""Packing: several short sequences in one row of full length, instead of padding."""

from __future__ import annotations

from data_utils.packing.plan import ALGORITHMS, PackingPlan, plan_packing

__all__ = ["ALGORITHMS", "PackingPlan", "plan_packing"]
