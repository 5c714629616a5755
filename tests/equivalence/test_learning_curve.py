"""The first steps of training give the losses of a plain PyTorch loop."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install -r requirements-bench.txt")

from benchmarks.learning import LIMIT, OURS, PYTORCH, Curves, deviations, pytorch_and_our_losses
from benchmarks.samples import generated_samples
from benchmarks.settings import MICRO_BATCH
from tests.support.bert_pairs import architecture

pytestmark = pytest.mark.slow

STEPS = 25


@pytest.fixture(scope="module")
def curves() -> Curves:
    """The curves of a small vocabulary, which a small model can learn within a few steps.

    They are made in a process of their own: Transformers decides when it is imported whether it offers PyTorch's
    classes, and the tests of the product import it without them.
    """
    small = architecture(hidden_size=64, vocab_size=200, max_position_embeddings=512, intermediate_size=128)
    samples = generated_samples(small.vocab_size, MICRO_BATCH, seed=3)
    repeated = {name: np.tile(values, (STEPS, 1)) for name, values in samples.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("USE_TORCH", "AUTO")
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
            return process.submit(pytorch_and_our_losses, small, repeated, STEPS, learning_rate=5e-3).result()


def test_the_loss_of_every_step_is_that_of_pytorch(curves: Curves) -> None:
    assert len(curves[OURS]) == STEPS
    assert max(deviations(curves[OURS], curves[PYTORCH])) <= LIMIT
    assert curves[OURS][-1] < 0.9 * curves[OURS][0]
