"""The double of Graphcore's packages has their signatures and defaults, and refuses what they refuse."""

from __future__ import annotations

from tests.emulation.conftest import Emulation


def test_signatures_and_defaults_equal_graphcores_code(emulation: Emulation) -> None:
    emulation.script("tests/emulation/comparison.py")
