"""The double of Graphcore's packages has their signatures and defaults, and refuses what they refuse."""

from __future__ import annotations

from tests.emulation.conftest import Emulation


def test_it_is_as_graphcores_code(emulation: Emulation) -> None:
    emulation.script("tests/emulation/comparison.py")
