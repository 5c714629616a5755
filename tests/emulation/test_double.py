"""The double of Graphcore's packages has their signatures and defaults, and refuses what they refuse."""

from __future__ import annotations

from tests.emulation.conftest import Emulation
from tests.emulation.refusals import not_refused
from tests.support.graphcore.computing import graphcore


def test_signatures_and_defaults_equal_graphcores_code(emulation: Emulation) -> None:
    emulation.script("tests/emulation/comparison.py")


def test_double_refuses_what_graphcore_refuses() -> None:
    with graphcore():
        assert not_refused() == []
