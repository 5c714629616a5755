"""The weights of a Hugging Face TensorFlow BERT, by the names of Hugging Face's PyTorch BERT.

H hidden
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from transformers import TFBertForPreTraining

Named = Iterator[tuple[str, np.ndarray]]


def pytorch_weights(source: TFBertForPreTraining) -> dict[str, np.ndarray]:
    """Name → array. A dense kernel is (in, out) in TensorFlow and (out, in) in PyTorch.

    The weight of the masked-LM product and its bias are tied in PyTorch, and named once here.
    """
    return dict(_pairs(source))


def _pairs(source: TFBertForPreTraining) -> Named:
    bert, head = source.bert, source.mlm.predictions
    yield "bert.embeddings.word_embeddings.weight", bert.embeddings.weight.numpy()
    yield "bert.embeddings.position_embeddings.weight", bert.embeddings.position_embeddings.numpy()
    yield "bert.embeddings.token_type_embeddings.weight", bert.embeddings.token_type_embeddings.numpy()
    yield from _norm("bert.embeddings.LayerNorm", bert.embeddings.LayerNorm)
    for number, layer in enumerate(bert.encoder.layer):
        name = f"bert.encoder.layer.{number}"
        attention = layer.attention.self_attention
        yield from _dense(f"{name}.attention.self.query", attention.query)
        yield from _dense(f"{name}.attention.self.key", attention.key)
        yield from _dense(f"{name}.attention.self.value", attention.value)
        yield from _dense(f"{name}.attention.output.dense", layer.attention.dense_output.dense)
        yield from _norm(f"{name}.attention.output.LayerNorm", layer.attention.dense_output.LayerNorm)
        yield from _dense(f"{name}.intermediate.dense", layer.intermediate.dense)
        yield from _dense(f"{name}.output.dense", layer.bert_output.dense)
        yield from _norm(f"{name}.output.LayerNorm", layer.bert_output.LayerNorm)
    yield from _dense("bert.pooler.dense", bert.pooler.dense)
    yield "cls.predictions.bias", head.bias.numpy()
    yield from _dense("cls.predictions.transform.dense", head.transform.dense)
    yield from _norm("cls.predictions.transform.LayerNorm", head.transform.LayerNorm)
    yield from _dense("cls.seq_relationship", source.nsp.seq_relationship)


def _dense(name: str, layer: Any) -> Named:
    yield f"{name}.weight", layer.kernel.numpy().T
    yield f"{name}.bias", layer.bias.numpy()


def _norm(name: str, layer: Any) -> Named:
    yield f"{name}.weight", layer.gamma.numpy()
    yield f"{name}.bias", layer.beta.numpy()
