"""The double refuses what Graphcore's code refuses, which the emulation checks with the same list."""

from __future__ import annotations

from tests.support.graphcore.computing import graphcore
from tests.support.graphcore.refusals import not_refused


def test_double_refuses_what_graphcore_refuses() -> None:
    with graphcore():
        assert not_refused() == []
