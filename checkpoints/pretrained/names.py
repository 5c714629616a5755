"""What other projects call BERT's weights, as rules that give PyTorch's names.

PyTorch's name is Hugging Face's, ``bert.encoder.layer.0.attention.self.query.weight``. A dense weight is (out, in)
there and a kernel (in, out) in TensorFlow.
"""

from __future__ import annotations

import re
from typing import Any, Callable, NamedTuple, Optional

from checkpoints.pretrained.weights import Weights

WORD_TABLE = "bert.embeddings.word_embeddings.weight"
WORD_BIAS = "cls.predictions.bias"
TIED_TABLE = "cls.predictions.decoder.weight"  # the word table again
TIED_BIAS = "cls.predictions.decoder.bias"  # the bias of the words again
VOCABULARY_SIZED = (WORD_TABLE, WORD_BIAS)
SPAN_HEAD, CLASSIFIER = "qa_outputs", "classifier"

_ROOTS = {
    "embeddings": "bert", "encoder": "bert", "pooler": "bert", "predictions": "cls", "seq_relationship": "cls",
}  # fmt: skip
_NORM = {"gamma": "weight", "beta": "bias"}
_BUFFERS = ("position_ids", "token_type_ids")  # constants that PyTorch saves among the weights
_WRAPPER = "module."  # data-parallel training in PyTorch


class Name(NamedTuple):
    """PyTorch's name of a weight, and whether its axes have to be exchanged."""

    name: str
    transposed: bool = False


Rule = Callable[[str], Optional[Name]]


def from_pytorch(name: str) -> Optional[Name]:
    """Hugging Face's PyTorch names of all times: with and without ``bert.``, with ``gamma`` and ``beta`` for the norms.

    Returns:
        None for what is no weight.
    """
    parts = (name[len(_WRAPPER) :] if name.startswith(_WRAPPER) else name).split(".")
    if parts[-1] in _BUFFERS:
        return None
    parts[-1] = _NORM.get(parts[-1], parts[-1])
    return Name(_rooted(".".join(parts)))


def from_tensorflow(name: str) -> Name:
    """Hugging Face's TensorFlow names, ``[tf_bert_…/]bert/encoder/layer_._0/attention/self/query/kernel:0``.

    A scope ``mlm___cls`` is ``cls`` in PyTorch, and ``_._`` separates like a slash.
    """
    parts = name.split(":")[0].replace("_._", "/").split("/")
    if parts[0].startswith("tf_"):
        parts = parts[1:]
    parts = [part.rsplit("___", 1)[-1] for part in parts]
    leaf = parts[-1]
    parts[-1] = {"kernel": "weight", "embeddings": "weight", **_NORM}.get(leaf, leaf)
    return Name(_rooted(".".join(parts)), transposed=leaf == "kernel")


def from_google(name: str) -> Optional[Name]:
    """Names of Google's TF1 checkpoints, ``bert/encoder/layer_0/attention/self/query/kernel``.

    The output weights of heads are (out, in) there already: of the next sentence ``cls/seq_relationship``, of spans
    ``cls/squad``, of the classifier without a scope.
    """
    name = name.replace("cls/squad/", "qa_outputs/").replace("cls/predictions/output_bias", "cls/predictions/bias")
    parts = re.sub(r"/layer_(\d+)/", r"/layer/\1/", name).split("/")
    if parts[0] in ("output_weights", "output_bias"):
        parts.insert(0, "classifier")
    if parts[0] not in ("bert", "cls", "qa_outputs", "classifier"):
        return None
    leaf = parts[-1]
    parts[-1] = {"kernel": "weight", "output_weights": "weight", "output_bias": "bias", **_NORM}.get(leaf, leaf)
    if leaf.endswith("_embeddings"):
        parts.append("weight")
    return Name(".".join(parts), transposed=leaf == "kernel")


def _rooted(name: str) -> str:
    """``name`` with the model's prefix, which a model without a head is saved without."""
    root = _ROOTS.get(name.split(".", 1)[0])
    return f"{root}.{name}" if root else name


def renamed(weights: Weights, rule: Rule) -> Weights:
    """``weights`` by PyTorch's names, each once: what PyTorch has tied to another is left out.

    Args:
        weights: by the names in their file.
        rule: gives PyTorch's name.
    """
    named: Weights = {}
    for name, weight in weights.items():
        known = rule(name)
        if known is not None:
            named[known.name] = weight.transposed() if known.transposed else weight
    named.pop(TIED_TABLE, None)
    tied_bias = named.pop(TIED_BIAS, None)
    if tied_bias is not None:
        named.setdefault(WORD_BIAS, tied_bias)
    return named


def with_named_head(weights: Weights, architectures: Any) -> Weights:
    """``weights``, the head by its name, which Transformers leaves out of TensorFlow's safetensors.

    Args:
        architectures: Hugging Face's classes, as the model's config names them; anything but a list names none.
    """
    heads = {
        "BertForQuestionAnswering": SPAN_HEAD,
        "BertForSequenceClassification": CLASSIFIER,
        "BertForTokenClassification": CLASSIFIER,
    }
    named = [name for name in architectures if isinstance(name, str)] if isinstance(architectures, list) else []
    head = next((heads[name] for name in named if name in heads), None)
    if head is None:
        return weights
    return {f"{head}.{name}" if name in ("weight", "bias") else name: weight for name, weight in weights.items()}


def without_slots(weights: Weights) -> Weights:
    """``weights`` without those of an optimizer, which are named below the weight that they belong to."""
    return {name: weight for name, weight in weights.items() if name.rpartition("/")[0] not in weights}


def is_encoder_weight(name: str) -> bool:
    """Whether BERT cannot do without a weight; heads and the pooler are often trained anew."""
    return name.startswith("bert.") and not name.startswith("bert.pooler.")


def number_of_layers(weights: Weights) -> int:
    """Encoder layers that ``weights`` belong to."""
    found = [re.match(r"bert\.encoder\.layer\.(\d+)\.", name) for name in weights]
    return max((int(match.group(1)) + 1 for match in found if match), default=0)
