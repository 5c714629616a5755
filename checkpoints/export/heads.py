"""Which class of Hugging Face's a model is, by its head."""

from __future__ import annotations

from typing import Collection, Dict, NamedTuple, Sequence

from checkpoints.pretrained.completion import NEXT_SENTENCE
from checkpoints.pretrained.names import CLASSIFIER, SPAN_HEAD, WORD_BIAS
from model.architecture import TASKS


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
MASKED_LM = Head("BertForMaskedLM", "AutoModelForMaskedLM", "fill-mask")
TRAINED: Dict[str, Head] = {
    facts.hugging_face: Head(facts.hugging_face, facts.hugging_face.replace("Bert", "AutoModel"), facts.pipeline)
    for facts in TASKS.values()
}  # by class


def head_of(names: Collection[str], architectures: Sequence[str] = ()) -> Head:
    """Return the class that weights of these names belong to.

    Args:
        names: PyTorch's.
        architectures: classes that the weights' own config names, if they have one. They tell heads apart whose weights
            have the same names, such as those of tokens and of sequences.
    """
    if f"{SPAN_HEAD}.weight" in names:
        return TRAINED["BertForQuestionAnswering"]
    if f"{CLASSIFIER}.weight" in names:
        named = next(iter(architectures), "BertForSequenceClassification")
        named = named[2:] if named.startswith("TF") else named
        return TRAINED.get(named, Head(named, named, ""))
    if WORD_BIAS in names:
        return TRAINED["BertForPreTraining"] if NEXT_SENTENCE in names else MASKED_LM
    return ENCODER
