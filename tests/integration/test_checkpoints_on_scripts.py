"""Every kind of checkpoint on every script: it works, or one line says why not; no head is taken for another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from model.tasks import CLASSIFICATION, PRETRAINING, SQUAD, TOKEN_CLASSIFICATION
from tests.support import fine_tuning_runs
from tests.support.bert_pairs import architecture
from tests.support.checkpoint_writers import google, safetensors
from tests.support.fine_tuning_runs import PIECES, TAGGED_PIECES, write_pieces
from tests.support.hf_models import build_hf_model
from tests.support.pytorch_names import pytorch_arrays
from tests.support.runs import NOUNS, SMALLEST, VERBS, prepare_dataset, run_command, write_json, write_text
from tests.support.squad_files import WORDS

pytestmark = pytest.mark.long

# The head of a checkpoint, and the head that a script needs. All classifiers but that of a number have two outputs.
WORDS_ALONE, SENTENCES, NONE = "masked words", "masked words and next sentences", "no head"
CLASSES, LABELS, NUMBER = "classes", "several labels", "a number"
TAGS, SPANS, UNKNOWN = "tags", "spans", "a classifier of an unknown kind"

SIZES = {**SMALLEST, "vocab_size": 200, "max_position_embeddings": 64}
CHECKPOINTS = {
    "own words": WORDS_ALONE, "own sentences": SENTENCES, "own classes": CLASSES, "own labels": LABELS,
    "own number": NUMBER, "own tags": TAGS, "own spans": SPANS, "own embeddings": NONE,
    "BertModel": NONE, "BertForMaskedLM": WORDS_ALONE, "BertForPreTraining": SENTENCES,
    "BertForSequenceClassification": CLASSES, "several labels": LABELS, "BertForTokenClassification": TAGS,
    "BertForQuestionAnswering": SPANS, "sentence-transformers": NONE,
    "TF1": SENTENCES, "TF1 classifier": UNKNOWN, "TF1 spans": SPANS,
}  # fmt: skip
SCRIPTS: dict[str, tuple[str, dict[str, Any]]] = {
    WORDS_ALONE: (PRETRAINING, {"dataset_dir": "words", "use_next_sentence": False, "max_predictions_per_seq": 5}),
    SENTENCES: (PRETRAINING, {"dataset_dir": "sentences", "max_predictions_per_seq": 5}),
    CLASSES: (CLASSIFICATION, {"classification_data": {"train_file": "own.csv", "classes": ["dark", "kind"]}}),
    LABELS: (
        CLASSIFICATION,
        {"classification_data": {"train_file": "own.csv", "classes": ["dark", "kind"], "label_separator": "|"}},
    ),
    NUMBER: (CLASSIFICATION, {"classification_data": {"train_file": "numbers.csv", "regression": True}}),
    TAGS: (TOKEN_CLASSIFICATION, {}),
    SPANS: (SQUAD, {"squad": {"doc_stride": 24, "max_query_length": 12}}),
    NONE: ("sentence_embedding", {"embedding": {"train_file": "pairs.csv", "text": ["a", "b"]}}),
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("matrix")
    pieces = dict.fromkeys([*PIECES, *TAGGED_PIECES, *WORDS, *(word.lower() for word in (*NOUNS, *VERBS)), "near"])
    write_pieces(root / "vocab.txt", list(pieces))
    text = write_text(root / "text.txt", documents=20)
    common = ("--vocab-file", str(root / "vocab.txt"), "--validation-fraction", "0.2")
    prepare_dataset(root / "sentences", text, *common)
    prepare_dataset(root / "words", text, "--no-next-sentence", *common)
    fine_tuning_runs.write_squad(root, train=4, dev=2)
    for name in ("train", "valid", "test"):
        (root / f"{name}.txt").write_text("anna dark\nsaw kind\n\nthe dark\nboris kind\n\n" * 4, encoding="utf-8")
    rows = "".join(f"the film is {word},{('dark', 'kind')[n % 2]}\n" for n, word in enumerate(PIECES[5:] * 2))
    (root / "own.csv").write_text(f"text,label\n{rows}", encoding="utf-8")
    (root / "numbers.csv").write_text("text,label\n" + "the film,1.5\na film,2\n" * 10, encoding="utf-8")
    (root / "pairs.csv").write_text(
        "a,b\n" + "".join(f"film {a},{b} film\n" for a, b in zip(PIECES[5:] * 2, PIECES[7:] * 2)), encoding="utf-8"
    )
    return root


def config_of(root: Path, head: str, name: str, **changes: Any) -> tuple[str, Path]:
    task, settings = SCRIPTS[head]
    shared = {
        "bert_config": {**SIZES, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
        "max_seq_length": 32 if task != SQUAD else 48, "total_num_train_samples": 8, "global_batches_per_log": 1,
        "report": False,
    }  # fmt: skip
    settings = {"dataset_dir": str(root), **settings}
    settings["dataset_dir"] = str(root / settings["dataset_dir"])
    return task, fine_tuning_runs.write_config(root, name, **shared, **settings, **changes)


@pytest.fixture(scope="module", params=CHECKPOINTS)
def checkpoint(request: pytest.FixtureRequest, root: Path) -> tuple[str, Path]:
    name: str = request.param
    head, folder = CHECKPOINTS[name], root / "checkpoints" / name
    if name.startswith("own"):
        task, config = config_of(root, head, name)
        run_command(task, config, status=0)
        return name, root / "runs" / name
    task = {TAGS: TOKEN_CLASSIFICATION, SPANS: SQUAD, CLASSES: CLASSIFICATION, LABELS: CLASSIFICATION}.get(
        head, CLASSIFICATION if head == UNKNOWN else PRETRAINING
    )
    source = build_hf_model(task, architecture(**SIZES), classes=2)
    if name.startswith("TF1"):
        google(source, folder)
    else:
        left_out = {NONE: "cls.", WORDS_ALONE: "cls.seq_relationship"}.get(head, "nothing")
        safetensors(source, folder, {n: a for n, a in pytorch_arrays(source).items() if not n.startswith(left_out)})
        settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        settings["architectures"] = [name if name.startswith("Bert") else "BertForSequenceClassification"]
        if head == TAGS:
            settings["id2label"] = {"0": "dark", "1": "kind"}
        if head == LABELS:
            settings["problem_type"] = "multi_label_classification"
        if name == "sentence-transformers":
            settings["architectures"] = ["BertModel"]
            write_json(folder / "modules.json", MODULES)
            (folder / "1_Pooling").mkdir()
            write_json(folder / "1_Pooling" / "config.json", {"pooling_mode_mean_tokens": True})
        write_json(folder / "config.json", settings)
    (folder / "vocab.txt").write_bytes((root / "vocab.txt").read_bytes())
    return name, folder


MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
]


def fits(name: str, needed: str, trains: bool) -> bool:
    """Return whether a checkpoint has the head that a script needs; training may begin with that of other classes."""
    head = CHECKPOINTS[name]
    if trains and needed in (CLASSES, LABELS):
        return head in (CLASSES, LABELS, UNKNOWN)
    if head == UNKNOWN or name == "BertForSequenceClassification":  # does not say what its outputs mean
        return needed in (CLASSES, LABELS, NONE) or (head == UNKNOWN and trains and needed == TAGS)
    return needed in (head, NONE) or (head == SENTENCES and needed == WORDS_ALONE)


@pytest.mark.parametrize("needed", SCRIPTS)
@pytest.mark.parametrize("trains", [True, False], ids=["trained", "evaluated"])
def test_scripts(root: Path, checkpoint: tuple[str, Path], needed: str, trains: bool) -> None:
    name, folder = checkpoint
    label = f"{name} for {needed} {'trained' if trains else 'evaluated'}"
    changes = {"pretrained_ckpt_path": str(folder), "vocab_file": None, "do_training": trains}
    task, config = config_of(root, needed, label, **changes)
    outcome = run_command(task, config)
    if not trains and not fits(name, needed, trains):
        assert outcome.status == 2 and len(outcome.error.splitlines()) == 1
        return
    assert outcome.status == 0, outcome.errors
    if trains and needed != NONE:
        random = [line for line in outcome.errors.splitlines() if "starts from random" in line]
        assert any(".pooler." not in line for line in random) != fits(name, needed, trains), random
