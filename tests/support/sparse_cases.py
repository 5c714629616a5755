"""A sparse model among the cases of several processes, and the change of its patterns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from execution.processes import Processes
from settings.schema import TrainingConfig
from sparsity.layer import sparse_layers
from sparsity.training import PatternRule

SPARSE = {"sparsity_ratio": 0.75, "sparsity_block_size": 4}


def pattern_change(trained: Any, processes: Processes) -> Callable[[int], None]:
    """Return what changes the patterns after two updates, by the gradient of samples that only the chief has."""
    layers, optimizer = sparse_layers(trained.pair.blocks), trained.optimizer
    config = TrainingConfig(sparsity={"ratio": 0.75, "method": "rigl"})
    size = max(layer.size for layer in layers)
    norms = np.random.default_rng(2 + processes.index).uniform(size=size)
    gradients = [norms[: layer.size] for layer in layers]
    moments, shards = optimizer.moments, optimizer.sharded_moments()
    rule = PatternRule(config.sparsity, config.seed, 6, moments, lambda step: gradients, processes, shards)

    def after(step: int) -> None:
        if step == 2:
            assert rule.apply(layers, step) > 0

    return after
