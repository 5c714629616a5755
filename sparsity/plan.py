"""A sparse model compared with the dense one, for the plan."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Dict, List, Tuple

from model.architecture import Architecture


def compared_with_dense(
    architecture: Architecture, parameters: Callable[[Architecture], int], flops: Callable[[Architecture], int]
) -> Tuple[Dict[str, Any], List[Tuple[str, str]]]:
    """Return the figures of a model, with their ratio to those of the dense model, and rows for the plan.

    Both are empty if the model is dense.
    """
    if not architecture.sparsity_ratio:
        return {}, []
    dense = dataclasses.replace(architecture, sparsity_ratio=0.0)
    density = architecture.matrix_weights() / dense.matrix_weights()
    of_parameters, of_flops = (count(architecture) / count(dense) for count in (parameters, flops))
    figures = {
        "encoder_density": density,
        "trainable_parameters": parameters(architecture),
        "parameters_of_dense": of_parameters,
        "flops_per_sample": flops(architecture),
        "flops_of_dense": of_flops,
    }
    rows = [
        ("sparse encoder", f"{density:.1%} of its matrices' weights exist"),
        ("compared with dense", f"{of_parameters:.1%} of the parameters, {of_flops:.1%} of the FLOPs"),
    ]
    return figures, rows
