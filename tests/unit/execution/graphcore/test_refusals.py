"""The double refuses what Graphcore's code refuses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.graphcore.computing import graphcore
from tests.support.graphcore.refusals import REFUSALS


@pytest.fixture(scope="module", autouse=True)
def _double() -> Iterator[None]:
    with graphcore():
        yield


@pytest.mark.parametrize("name", REFUSALS)
def test_refused(name: str) -> None:
    call, kind, words = REFUSALS[name]
    with pytest.raises(kind) as refused:
        call()
    assert type(refused.value) is kind and words in " ".join(str(refused.value).split())
