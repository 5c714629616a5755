"""Which way of multiplying by a block-sparse matrix is fastest, by a table of what was measured.

A table and no measurement at the start of a run, so that a run that goes on computes as it did before.
"""

from __future__ import annotations

from typing import NamedTuple

from sparsity import native
from utilities.errors import UserError

NATIVE, GATHER, MASKED, AUTO = "native", "gather", "masked", "auto"
KERNELS = (AUTO, NATIVE, GATHER, MASKED)

# Share of masked dense's rate at which each block size's own code does its operations, forward and backward together:
# below this density it is faster. As measured at 768 × 3072, 1024 tokens, on 2 cores of an AMD EPYC with AVX-512:
# `make sparse-layer`. For ``gather``, compiled by XLA for a CPU.
RATES = {NATIVE: {4: 0.28, 8: 0.53, 16: 0.54}, GATHER: {16: 0.17}}


class Choice(NamedTuple):
    """A way of multiplying, and why."""

    kernel: str
    reason: str


def choose(wish: str, block_size: int, density: float, on_host: bool, on_gpu: bool = False) -> Choice:
    """The way to multiply.

    Args:
        wish: one of ``KERNELS``.
        block_size: b.
        density: share of the blocks that exists.
        on_host: whether a training step may call this machine's own code: on a CPU, and outside of XLA.
        on_gpu: whether it runs on a GPU.

    Raises:
        UserError: what is asked for needs a package that is not installed.
    """
    if wish == NATIVE and not native.is_available():
        raise UserError("sparsity.kernel is native, which needs llvmlite: pip install llvmlite, or set it to auto")
    if wish != AUTO:
        return Choice(wish, "as sparsity.kernel says")
    if on_gpu:
        return Choice(MASKED, "on a GPU no other way was measured to be faster")
    kernel, where = (NATIVE, "") if on_host else (GATHER, " inside XLA")
    if kernel == NATIVE and not native.is_available():
        return Choice(MASKED, "the package llvmlite is not installed, without which masked dense is faster")
    crossing = RATES[kernel].get(block_size, 0.0)
    if density >= crossing:
        above = f"above {crossing:.0%} density" if crossing else "at any density"
        return Choice(MASKED, f"with {block_size}×{block_size} blocks{where} masked dense is faster {above}")
    return Choice(kernel, f"about {density / crossing:.2f} of masked dense's time")
