"""Exports name the class of Transformers that loads them."""

from __future__ import annotations

import pytest
import transformers

from checkpoints.export.arrays import EMBEDDING, ENCODER, MASKED_LM, NEXT_SENTENCE_ALONE, Head
from model.tasks import TASKS

HEADS = [
    ENCODER,
    EMBEDDING,
    MASKED_LM,
    NEXT_SENTENCE_ALONE,
    *(Head(facts.hugging_face, facts.pipeline) for facts in TASKS.values()),
]


@pytest.mark.parametrize("head", HEADS, ids=[f"{head.model}, {head.pipeline}" for head in HEADS])
def test_the_automatic_class_loads_the_model(head: Head) -> None:
    automatic = getattr(transformers, f"TF{head.auto}")
    assert automatic._model_mapping[transformers.BertConfig].__name__ == f"TF{head.model}"
