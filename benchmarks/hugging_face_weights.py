"""The weights of a Hugging Face TensorFlow BERT, by the names of Hugging Face's PyTorch BERT."""

from __future__ import annotations

import numpy as np
from transformers import TFBertForPreTraining

from checkpoints.pretrained.weights import from_tensorflow


def pytorch_weights(source: TFBertForPreTraining) -> dict[str, np.ndarray]:
    """Name → array. A dense kernel is (in, out) in TensorFlow and (out, in) in PyTorch.

    The weight of the masked-LM product and its bias are tied in PyTorch, and named once here.
    """
    weights = {}
    for variable in source.weights:
        known = from_tensorflow(variable.name)
        weights[known.name] = variable.numpy().T if known.transposed else variable.numpy()
    return weights
