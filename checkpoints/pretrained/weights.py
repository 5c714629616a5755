"""Weights of any origin in one form: arrays by the names of Hugging Face's PyTorch BERT, read on demand.

PyTorch's names look like ``bert.encoder.layer.0.attention.self.query.weight``. The rules here derive them from the
names of other projects. A dense layer's weight is (out, in) in PyTorch and (in, out) in TensorFlow.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

from utilities.errors import UserError, one_line

WORD_TABLE = "bert.embeddings.word_embeddings.weight"
WORD_BIAS = "cls.predictions.bias"
POSITION_TABLE = "bert.embeddings.position_embeddings.weight"
VOCABULARY_SIZED = (WORD_TABLE, WORD_BIAS)
TRANSFORM = "cls.predictions.transform"  # the layer before the masked-LM product
NEXT_SENTENCE = "cls.seq_relationship.weight"
SPAN_HEAD, CLASSIFIER = "qa_outputs", "classifier"

_TIED_TABLE = "cls.predictions.decoder.weight"  # PyTorch's second name for the word table
_TIED_BIAS = "cls.predictions.decoder.bias"  # PyTorch's second name for the bias of the words
_ROOTS = {
    "embeddings": "bert", "encoder": "bert", "pooler": "bert", "predictions": "cls", "seq_relationship": "cls",
}  # fmt: skip
_NORM = {"gamma": "weight", "beta": "bias"}
_BUFFERS = ("position_ids", "token_type_ids")  # constants that PyTorch saves among the weights
# Prefixes that data-parallel training in PyTorch, Lightning's modules and torch.compile add.
_WRAPPERS = re.compile(r"(?:(?:module|model|_orig_mod)\.)*")


@dataclasses.dataclass(frozen=True)
class Weight:
    """One array of a checkpoint, with its file and name there as the location for error messages."""

    shape: Tuple[int, ...]
    read: Callable[[], np.ndarray]
    location: str

    def value(self) -> np.ndarray:
        """Read the array as float32, whatever its floating-point format in the file."""
        with readable(self.location):
            array = np.asarray(self.read())
            if array.shape != self.shape:
                raise ValueError(f"its shape is {list(array.shape)} instead of {list(self.shape)}")
            if array.dtype.itemsize == 1:
                raise UserError(f"{self.location}: is quantized ({array.dtype}); name the weights before that")
            array = array.astype(np.float32, copy=False)
        if not np.isfinite(array).all():
            raise UserError(f"{self.location}: contains numbers that are not finite; use an earlier checkpoint")
        return array

    def transposed(self) -> Weight:
        return Weight(self.shape[::-1], lambda: self.read().T, self.location)


Weights = Dict[str, Weight]


@contextlib.contextmanager
def readable(location: str) -> Iterator[None]:
    """Turn any error of a library that reads a file into a ``UserError`` of one line that names the location."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # each library has its own exceptions for a damaged file
        reason = one_line(error) or type(error).__name__
        raise UserError(f"{location}: cannot be read ({reason}); the file is damaged, download it again") from error


class Name(NamedTuple):
    """PyTorch's name of a weight, and whether its axes must be exchanged."""

    name: str
    transposed: bool = False


Rule = Callable[[str], Optional[Name]]


def from_pytorch(name: str) -> Optional[Name]:
    """Normalize Hugging Face's PyTorch names of all versions: without ``bert.``, or with ``gamma`` and ``beta``.

    The result is None for a buffer, which is not a weight.
    """
    parts = _WRAPPERS.sub("", name, count=1).split(".")
    if parts[-1] in _BUFFERS:
        return None
    parts[-1] = _NORM.get(parts[-1], parts[-1])
    return Name(_with_root(".".join(parts)))


def from_tensorflow(name: str) -> Name:
    """Translate Hugging Face's TensorFlow names, ``[tf_bert_…/]bert/encoder/layer_._0/attention/self/query/kernel:0``.

    A scope such as ``mlm___cls`` is ``cls`` in PyTorch, and ``_._`` separates like a slash.
    """
    parts = name.split(":")[0].replace("_._", "/").split("/")
    if parts[0].startswith("tf_"):
        parts = parts[1:]
    parts = [part.rsplit("___", 1)[-1] for part in parts]
    leaf = parts[-1]
    parts[-1] = {"kernel": "weight", "embeddings": "weight", **_NORM}.get(leaf, leaf)
    return Name(_with_root(".".join(parts)), transposed=leaf == "kernel")


def from_google(name: str) -> Optional[Name]:
    """Translate the names of Google's TF1 checkpoints, ``bert/encoder/layer_0/attention/self/query/kernel``.

    The output weights of heads are (out, in) in these files too; they are ``cls/seq_relationship`` for next sentences,
    ``cls/squad`` for spans, and without scope for the classifier.

    The result is None for names that do not belong to BERT, such as the step.
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


def _with_root(name: str) -> str:
    """Add the prefix ``bert.`` or ``cls.``, which is missing if a model was saved without a head."""
    root = _ROOTS.get(name.split(".", 1)[0])
    return f"{root}.{name}" if root else name


def renamed(weights: Weights, rule: Rule) -> Weights:
    """Rename weights from the names in their file to PyTorch's names. Tied weights keep only their first name."""
    named: Weights = {}
    for name, weight in weights.items():
        known = rule(name)
        if known is not None:
            named[known.name] = weight.transposed() if known.transposed else weight
    named.pop(_TIED_TABLE, None)
    tied_bias = named.pop(_TIED_BIAS, None)
    if tied_bias is not None:
        named.setdefault(WORD_BIAS, tied_bias)
    return named


def named_classes(architectures: Any) -> List[str]:
    """Return the names of Hugging Face's classes in a ``config.json``, as PyTorch has them; no list has none."""
    names = [name for name in architectures if isinstance(name, str)] if isinstance(architectures, list) else []
    return [name[2:] if name.startswith("TF") else name for name in names]


def with_head_name(weights: Weights, architectures: Any) -> Weights:
    """Add the head's name, by the config's classes, where Transformers leaves it out of TensorFlow's safetensors."""
    heads = {
        "BertForQuestionAnswering": SPAN_HEAD,
        "BertForSequenceClassification": CLASSIFIER,
        "BertForTokenClassification": CLASSIFIER,
    }
    head = next((heads[name] for name in named_classes(architectures) if name in heads), None)
    if head is None:
        return weights
    return {f"{head}.{name}" if name in ("weight", "bias") else name: weight for name, weight in weights.items()}


def without_optimizer(weights: Weights) -> Weights:
    """Leave out an optimizer's moments, whose names are extensions of their weights' names."""
    return {name: weight for name, weight in weights.items() if name.rpartition("/")[0] not in weights}


def is_encoder_weight(name: str) -> bool:
    """Return whether BERT needs a weight; heads and the pooler are often trained from scratch."""
    return name.startswith("bert.") and not name.startswith("bert.pooler.")


def number_of_layers(weights: Weights) -> int:
    """Return the number of encoder layers that the weights belong to."""
    matches = [re.match(r"bert\.encoder\.layer\.(\d+)\.", name) for name in weights]
    return max((int(match.group(1)) + 1 for match in matches if match), default=0)
