"""The first steps of training give the losses of a plain PyTorch loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

pytest.importorskip("torch", reason="pip install -r requirements-bench.txt")

from benchmarks.curve_data import generated
from benchmarks.curves import Recipe, learning_curves
from benchmarks.learning_curve import LIMIT
from tests.equivalence.bert_pairs import architecture

if TYPE_CHECKING:
    from benchmarks.curves import Curves

STEPS = 25


@pytest.fixture(scope="module")
def curves() -> Curves:
    """A small vocabulary that a small model can learn within a few steps."""
    small = architecture(hidden_size=64, vocab_size=200, max_position_embeddings=512, intermediate_size=128)
    recipe = Recipe(small, steps=STEPS, learning_rate=5e-3)
    samples = generated(small.vocab_size, recipe.micro_batch, seed=3)
    repeated = {name: np.tile(values, (STEPS, 1)) for name, values in samples.items()}
    return learning_curves(recipe, repeated)


def test_the_loss_of_every_step_is_that_of_pytorch(curves: Curves) -> None:
    assert len(curves.ours) == STEPS
    assert max(curves.deviations) <= LIMIT


def test_something_was_learnt_so_that_equal_curves_say_something(curves: Curves) -> None:
    assert curves.ours[-1] < 0.9 * curves.ours[0]
