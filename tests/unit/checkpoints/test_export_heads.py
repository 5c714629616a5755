"""Exports name the class of Transformers that loads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import transformers

from checkpoints.export.arrays import EMBEDDING, ENCODER, MASKED_LM, NEXT_SENTENCE_ALONE, Head
from checkpoints.export.hf_folder import export
from checkpoints.writer import rewrite_description
from model.tasks import CLASSIFICATION, PRETRAINING, TASKS
from tasks import load
from tests.support.hf_models import write_vocabulary
from tests.support.saved_checkpoints import OPTIONS, PIECES, save
from utilities.errors import UserError

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


@pytest.mark.parametrize(
    ("task", "described", "longest"),
    [
        (PRETRAINING, {}, 48),
        (PRETRAINING, {"trained_positions": 20, "config": {"max_seq_length": 40}}, 20),  # in packs of 40
        (CLASSIFICATION, {"trained_positions": 20, "config": {"max_seq_length": 16}}, 16),
        (CLASSIFICATION, {"trained_positions": 20, "config": {"max_seq_length": 16}, "usual_length": 20}, 20),
    ],
)
def test_texts_are_cut_where_the_run_cuts_them(
    task: str, described: dict[str, Any], longest: int, tmp_path: Path
) -> None:
    """The positions after those are random, and predictions with them as well."""
    save(task, OPTIONS["everything"], tmp_path / "checkpoints", pieces=PIECES)
    rewrite_description(tmp_path / "checkpoints" / "step-00000003", described)
    export(str(tmp_path), tmp_path / "exported")
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(tmp_path / "exported"))
    assert len(tokenizer("w1 " * 60, truncation=True)["input_ids"]) == tokenizer.model_max_length == longest
    model = load(str(tmp_path))
    text = "w1 " * (longest - 3) + "[MASK]"
    if task == PRETRAINING:
        assert len(model(text)) == 5
        with pytest.raises(UserError, match=f"^'w2 .* has more than the {longest} tokens"):
            model(["[MASK]", f"w2 {text}"])
    else:
        longer = load(str(tmp_path / "exported"))(f"{text} {text}")
        assert dict(longer) == pytest.approx(dict(model(f"{text} {text}")), abs=1e-5)


def test_another_vocabulary_leaves_no_trained_row_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    save(PRETRAINING, OPTIONS["everything"], tmp_path / "checkpoints", pieces=PIECES)
    first = write_vocabulary(tmp_path, PIECES - 18)
    export(str(tmp_path), tmp_path / "first", first)
    assert not caplog.messages
    other = tmp_path / "other.txt"
    other.write_text(first.read_text().replace("w7\n", "seven\n"))
    export(str(tmp_path), tmp_path / "other", other)
    (line,) = caplog.messages
    assert f"1 of {PIECES - 18} word pieces are not those of" in line and "'seven', there 'w7'" in line
    for name in ("first", "other"):
        assert transformers.AutoConfig.from_pretrained(str(tmp_path / name)).vocab_size == PIECES
