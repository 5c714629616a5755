"""What a complete Hugging Face BERT has and a model of this project may lack: the same function, written in full.

Biases that were left out are zeros. The masked-LM head's transform, norm(gelu(dense(x))), cannot be left out there, but
can be made to change nothing: its input x is the output of the last LayerNorm, x = γ·z + β, with z of mean 0 and
variance 1 in each token. The dense layer gives s·(z + c) with c ≥ √H, which no entry of z can outweigh, and s so large
that gelu changes nothing there. The norm takes c away again as the mean, s as the deviation, and applies γ and β. What
is left of c is its rounding in float32: of 15 million logits of up to 5, the worst is off by 3e-6 at H = 128, 1e-5 at
768 and 2e-5 at 1024, where float32 rounds the product itself to 2e-6 and 5e-6.

H hidden
"""

from __future__ import annotations

import math
from typing import Callable, Dict, Tuple

import numpy as np

from checkpoints.pretrained.names import WORD_BIAS, WORD_TABLE, number_of_layers
from checkpoints.pretrained.weights import Weight, Weights

TRANSFORM = "cls.predictions.transform"
NEXT_SENTENCE = "cls.seq_relationship.weight"
_GELU_IS_IDENTITY = 6.0  # from here on gelu(x) = x in float32, exact and tanh
_STRETCH = 64.0  # s; a power of two, so that it rounds nothing
_SMALLEST_SCALE = 1e-6  # of γ, below which z cannot be recovered


def stand_ins(weights: Weights, layer_norm_eps: float) -> Weights:
    """Weights that complete those of a model of this project without changing what it computes.

    Args:
        weights: of the model, whole encoder.
        layer_norm_eps: what the model's norms add to the variance.

    Returns:
        Only what ``weights`` lacks. The transform is left out where γ is too small to divide by.
    """
    if WORD_TABLE not in weights:
        return {}
    hidden = weights[WORD_TABLE].shape[1]
    biases = {WORD_BIAS: weights[WORD_TABLE].shape[0]} if NEXT_SENTENCE in weights else {}
    for number in range(number_of_layers(weights)):
        attention = f"bert.encoder.layer.{number}.attention"
        for dense in ("self.query", "self.key", "self.value", "output.dense"):
            biases[f"{attention}.{dense}.bias"] = hidden
    made = {name: _zeros(size, name) for name, size in biases.items() if name not in weights}
    if NEXT_SENTENCE in weights and f"{TRANSFORM}.dense.weight" not in weights:
        made.update(_pass_through(weights, layer_norm_eps))
    return made


def is_transform(name: str) -> bool:
    """Whether a weight belongs to the layer before the masked-LM product."""
    return name.startswith(f"{TRANSFORM}.")


def _zeros(size: int, name: str) -> Weight:
    return Weight((size,), lambda: np.zeros(size, np.float32), f"zeros for {name}")


def _pass_through(weights: Weights, epsilon: float) -> Weights:
    """The transform that gives back its input."""
    norm = f"bert.encoder.layer.{number_of_layers(weights) - 1}.output.LayerNorm"
    if f"{norm}.weight" not in weights or f"{norm}.bias" not in weights:
        return {}
    scale, shift = (weights[f"{norm}.{part}"].value().astype(np.float64) for part in ("weight", "bias"))  # (H,) each
    if np.abs(scale).min() < _SMALLEST_SCALE:
        return {}
    hidden = len(scale)
    lift = math.ceil(math.sqrt(hidden) + _GELU_IS_IDENTITY / _STRETCH)  # a mean that float32 holds exactly
    parts: Dict[str, Tuple[Tuple[int, ...], Callable[[], np.ndarray]]] = {
        "dense.weight": ((hidden, hidden), lambda: np.diag(_STRETCH / scale)),
        "dense.bias": ((hidden,), lambda: _STRETCH * (lift - shift / scale)),
        "LayerNorm.weight": ((hidden,), lambda: scale * math.sqrt(1.0 + epsilon / _STRETCH**2)),
        "LayerNorm.bias": ((hidden,), lambda: shift),
    }
    return {
        f"{TRANSFORM}.{name}": Weight(shape, make, f"a layer that changes nothing, for {TRANSFORM}.{name}")
        for name, (shape, make) in parts.items()
    }
