"""Exports name the class of Transformers that loads them."""

from __future__ import annotations

from pathlib import Path

import pytest
import transformers

from checkpoints.export.arrays import EMBEDDING, ENCODER, MASKED_LM, NEXT_SENTENCE_ALONE, Head
from checkpoints.export.hf_folder import export
from model.tasks import PRETRAINING, TASKS
from tests.support.hf_models import write_vocabulary
from tests.support.saved_checkpoints import OPTIONS, save

HEADS = [
    ENCODER,
    EMBEDDING,
    MASKED_LM,
    NEXT_SENTENCE_ALONE,
    *(Head(entry.hugging_face, entry.pipeline) for entry in TASKS.values()),
]


@pytest.mark.parametrize("head", HEADS, ids=[f"{head.model}, {head.pipeline}" for head in HEADS])
def test_the_automatic_class_loads_the_model(head: Head) -> None:
    automatic = getattr(transformers, f"TF{head.auto}")
    assert automatic._model_mapping[transformers.BertConfig].__name__ == f"TF{head.model}"


def test_the_row_that_pytorch_never_trains_is_that_of_the_padding_token(tmp_path: Path) -> None:
    save(PRETRAINING, OPTIONS["everything"], tmp_path / "checkpoints")
    pieces = write_vocabulary(tmp_path, 118).read_text().split()
    assert pieces[0] == "[PAD]"
    words = [*pieces[5:], *pieces[:5]]  # as of k-mers, whose file ends with the special tokens
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    export(str(tmp_path / "checkpoints"), tmp_path / "exported", tmp_path / "vocab.txt")
    config = transformers.AutoConfig.from_pretrained(str(tmp_path / "exported"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(tmp_path / "exported"))
    assert config.pad_token_id == tokenizer.pad_token_id == words.index("[PAD]") == 113
