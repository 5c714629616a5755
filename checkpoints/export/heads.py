"""Which class of Hugging Face's a model is, by its head."""

from __future__ import annotations

from typing import Collection, NamedTuple, Sequence

from checkpoints.pretrained.completion import NEXT_SENTENCE
from checkpoints.pretrained.names import CLASSIFIER, SPAN_HEAD, WORD_BIAS


class Head(NamedTuple):
    """A kind of model.

    Attributes:
        model: Hugging Face's class.
        auto: the class to load it with.
        pipeline: what it is for, in the words of the model card.
    """

    model: str
    auto: str
    pipeline: str


ENCODER = Head("BertModel", "AutoModel", "feature-extraction")
PRETRAINING = Head("BertForPreTraining", "AutoModelForPreTraining", "fill-mask")
MASKED_LM = Head("BertForMaskedLM", "AutoModelForMaskedLM", "fill-mask")
SPANS = Head("BertForQuestionAnswering", "AutoModelForQuestionAnswering", "question-answering")
CLASSES = Head("BertForSequenceClassification", "AutoModelForSequenceClassification", "text-classification")


def head_of(names: Collection[str], architectures: Sequence[str] = ()) -> Head:
    """The class that weights of these names belong to.

    Args:
        names: PyTorch's.
        architectures: classes that the weights' own config names, if they have one; these know better where heads look
            alike, such as one of tokens and one of sequences.
    """
    if f"{SPAN_HEAD}.weight" in names:
        return SPANS
    if f"{CLASSIFIER}.weight" in names:
        named = next(iter(architectures), CLASSES.model)
        named = named[2:] if named.startswith("TF") else named
        return CLASSES if named == CLASSES.model else Head(named, named, "")
    if WORD_BIAS in names:
        return PRETRAINING if NEXT_SENTENCE in names else MASKED_LM
    return ENCODER
