"""Ops that are called eagerly, and programs other than pipelines."""

from __future__ import annotations

from tests.emulation.conftest import Emulation


def test_ops_outside_of_programs_compute_what_tensorflow_does(emulation: Emulation) -> None:
    emulation.script("tests/emulation/outside_programs.py")
