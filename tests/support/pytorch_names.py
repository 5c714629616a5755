"""A reference that maps each weight of Hugging Face's TensorFlow BERTs to the name in its PyTorch BERTs.

tests/equivalence/test_export_pytorch.py compares it with PyTorch itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

Named = Iterator[tuple[str, np.ndarray]]


def pytorch_arrays(source: Any) -> dict[str, np.ndarray]:
    """Return name → array for a model with any head; what PyTorch ties in the masked-LM product is named once."""
    arrays = dict(_encoder(source.bert))
    if source.bert.pooler is not None:
        arrays.update(_dense("bert.pooler.dense", source.bert.pooler.dense))
    if hasattr(source, "mlm"):
        head = source.mlm.predictions
        arrays["cls.predictions.bias"] = head.bias.numpy()
        arrays.update(_dense("cls.predictions.transform.dense", head.transform.dense))
        arrays.update(_norm("cls.predictions.transform.LayerNorm", head.transform.LayerNorm))
    if hasattr(source, "nsp"):
        arrays.update(_dense("cls.seq_relationship", source.nsp.seq_relationship))
    for head in ("qa_outputs", "classifier"):
        if hasattr(source, head):
            arrays.update(_dense(head, getattr(source, head)))
    return arrays


def _encoder(bert: Any) -> Named:
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


def _dense(name: str, layer: Any) -> Named:
    yield f"{name}.weight", layer.kernel.numpy().T  # (in, out) → (out, in)
    yield f"{name}.bias", layer.bias.numpy()


def _norm(name: str, layer: Any) -> Named:
    yield f"{name}.weight", layer.gamma.numpy()
    yield f"{name}.bias", layer.beta.numpy()
