"""Named entities from files to entity F1: reading, word pieces, losses, training, export, and one text."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import BertConfig

import run_token_classification
from checkpoints.export.folder import export
from checkpoints.pretrained.opening import open_pretrained
from data_utils.records.arrays import ArrayReader
from data_utils.records.packs import rows_of
from data_utils.token_classification import (
    TEST,
    TRAIN,
    VALIDATION,
    encode_words,
    entities_of,
    entity_scores,
    prediction_lines,
    read_sentences,
    token_features,
)
from data_utils.tokenizer import SPECIAL_TOKENS, load_tokenizer
from execution.software.platform import SoftwarePlatform
from keras_extensions.backend import tf
from model.architecture import TOKEN_CLASSIFICATION
from model.blocks import assemble
from model.conversion import convert
from model.huggingface import untrained
from model.losses import ACCURACY, LOSS, SEQUENCES_PER_PACK
from tasks.classify import main as classify
from tasks.token_classification import TagObjective
from tests.equivalence.bert_pairs import architecture, batch, token_shapes
from utilities.cli import main
from utilities.errors import UserError

NAMES, PLACES = ["anna", "boris", "clara"], ["oslo", "paris", "rome"]
FILLING = ["the", "a", "was", "in", "and", "saw", "went", "to"]
PIECES = [
    *SPECIAL_TOKENS,
    *NAMES,
    *PLACES,
    *FILLING,
    "van",
    "##dam",
    "un",
    "##known",
    ".",
    "叶",
    "老",
    "在",
    "北",
    "京",
]

# Computed with seqeval 1.2.2.
ENTITIES = {
    "B-P I-P O I-L": [("P", 0, 1), ("L", 3, 3)],
    "I-P I-P B-P O": [("P", 0, 1), ("P", 2, 2)],
    "I-P I-L I-L": [("P", 0, 0), ("L", 1, 2)],
    "B-P B-P I-L O": [("P", 0, 0), ("P", 1, 1), ("L", 2, 2)],
    "S-P S-L O E-P": [("P", 0, 0), ("L", 1, 1), ("P", 3, 3)],
    "B-P I-P E-P E-P": [("P", 0, 2), ("P", 3, 3)],
    "E-P I-P": [("P", 0, 0), ("P", 1, 1)],
    "S-P I-P E-P": [("P", 0, 0), ("P", 1, 2)],
    "O I-P B-L E-L I-L": [("P", 1, 1), ("L", 2, 3), ("L", 4, 4)],
    "B-P I-L O": [("P", 0, 0), ("L", 1, 1)],
}
SCORES = [  # expected, predicted, (precision, recall, f1)
    (
        ["B-L I-L O S-P I-P O B-P", "I-L S-P I-P", "O I-P O I-P E-L B-L"],
        ["B-L E-P O B-P I-P O B-P", "O S-P I-P", "B-P I-P S-L B-P E-L B-P"],
        (0.45454545454545453, 0.45454545454545453, 0.45454545454545453),
    ),
    (
        ["O I-P S-P I-L", "I-L B-L S-P O I-L B-L O", "O I-P I-L I-L B-P I-L"],
        ["O I-P S-P I-L", "I-L B-P S-P O I-L B-L O", "O O I-L I-L E-P I-L"],
        (0.9090909090909091, 0.8333333333333334, 0.8695652173913043),
    ),
    (
        ["O O S-P I-L", "B-P B-P E-L O", "E-L I-L B-P O"],
        ["I-L O S-L S-L", "B-P B-P E-L O", "E-L I-L B-P O"],
        (0.7777777777777778, 0.875, 0.823529411764706),
    ),
    (["O O"], ["O B-P"], (0.0, 0.0, 0.0)),
]


@pytest.mark.parametrize("tags", ENTITIES)
def test_entities_are_those_of_seqeval(tags: str) -> None:
    assert entities_of(tags.split()) == ENTITIES[tags]


@pytest.mark.parametrize(("expected", "predicted", "scores"), SCORES)
def test_scores_are_those_of_seqeval(expected: list[str], predicted: list[str], scores: tuple[float, ...]) -> None:
    found = entity_scores([tags.split() for tags in expected], [tags.split() for tags in predicted])
    assert tuple(found[""][name] for name in ("precision", "recall", "f1")) == pytest.approx(scores)
    assert sum(part["entities"] for kind, part in found.items() if kind) == found[""]["entities"]


def test_columns_are_read_in_all_their_forms(tmp_path: Path) -> None:
    text = "-DOCSTART- -X- -X- O\r\n\r\nEU NNP B-NP B-ORG\r\nrejects VBZ B-VP O\r\n\r\n\r\nBonn\tB-LOC\r\n"
    (tmp_path / "eng.train").write_text(text, encoding="utf-8")
    sentences = read_sentences(str(tmp_path), TRAIN)
    assert sentences.words == [["EU", "rejects"], ["Bonn"]]
    assert sentences.tags == [["B-ORG", "O"], ["B-LOC"]]


def test_cluener_is_read_as_tagged_characters(tmp_path: Path) -> None:
    rows = [
        {"text": "叶老在北京", "label": {"name": {"叶老": [[0, 1]]}, "address": {"北京": [[3, 4]], "京": [[4, 4]]}}},
        {"text": "无人", "label": {}},
    ]
    (tmp_path / "dev.json").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    sentences = read_sentences(str(tmp_path), VALIDATION)
    assert sentences.tags == [["B-name", "I-name", "O", "B-address", "I-address"], ["O", "O"]]
    assert sentences.overlapping == 1 and sentences.is_cluener
    lines = list(prediction_lines(sentences, sentences.tags))
    assert json.loads(lines[0]) == {"id": 0, "label": {"name": {"叶老": [[0, 1]]}, "address": {"北京": [[3, 4]]}}}
    (tmp_path / "test.json").write_text('{"id": 7, "text": "北京"}\n', encoding="utf-8")
    test = read_sentences(str(tmp_path), TEST)
    assert test.tags is None and test.ids == [7]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train.txt", "EU B-ORG\nrejects\n", "train.txt: line 2: does not end with a tag"),
        ("train.txt", "EU organisation\n", "train.txt: line 1: does not end with a tag"),
        ("train.txt", "\n\n", "holds no sentences"),
        ("train.json", '{"text": "x", "label": {"name": {"y": [[0, 1]]}}}\n', "train.json: line 1: is not"),
        ("train.json", "no json\n", "train.json: line 1: is not"),
        ("train.json", '{"text": "x"}\n', "holds no tags"),
        ("other.txt", "EU B-ORG\n", "has no train.txt or eng.train or train.json"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        read_sentences(str(tmp_path), TRAIN)
    assert message in str(caught.value) and ";" in str(caught.value)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vocabulary and CoNLL's files, in which a word decides its tag; some names have two words or two pieces."""
    root = tmp_path_factory.mktemp("entities")
    (root / "vocab.txt").write_text("".join(piece + "\n" for piece in PIECES), encoding="utf-8")
    chance = random.Random(0)
    for name, count in (("train", 200), ("valid", 30), ("test", 20)):
        lines = []
        for _ in range(count):
            for word in chance.choices(FILLING, k=chance.randrange(1, 5)):
                lines.append(f"{word} O")
            lines += chance.choice([[f"{chance.choice(NAMES)} B-PER"], ["anna B-PER", "vandam I-PER"]])
            lines += [f"{chance.choice(FILLING)} O", f"{chance.choice(PLACES)} B-LOC", ""]
        (root / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return root


def test_the_first_piece_of_a_word_carries_its_tag_and_what_is_cut_is_counted(root: Path) -> None:
    tokenizer = load_tokenizer(str(root / "vocab.txt"), True)
    sentences = [["anna", "vandam", "saw", "oslo"], ["\u200b", "rome"]]
    encoded = encode_words(tokenizer, sentences, 7)
    pieces = [[PIECES[number] for number in row] for row in encoded.arrays["input_ids"]]
    assert pieces[0] == ["[CLS]", "anna", "van", "##dam", "saw", "oslo", "[SEP]"]
    assert pieces[1] == ["[CLS]", "[UNK]", "rome", "[SEP]", "[PAD]", "[PAD]", "[PAD]"]
    assert (encoded.cut, encoded.cut_words, encoded.lengths.tolist()) == (0, 0, [7, 4])
    names, tags = ["O", "B-PER", "I-PER", "B-LOC"], [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-LOC"]]
    labels = encoded.labels(tags, names)
    assert labels.tolist() == [[0, 2, 3, 0, 1, 4, 0], [0, 1, 4, 0, 0, 0, 0]]
    assert encoded.tags(np.maximum(labels - 1, 0), names, sentences) == tags
    short = encode_words(tokenizer, sentences, 5)
    assert (short.cut, short.cut_words, short.lengths.tolist()) == (1, 2, [5, 4])
    assert short.tags(np.full((2, 5), 3), names, sentences)[0] == ["B-LOC", "B-LOC", "O", "O"]


@pytest.mark.parametrize("replace", [True, False], ids=["converted", "unconverted"])
def test_logits_and_loss_are_hugging_face_s(replace: bool) -> None:
    a, classes = architecture(), 5
    source = untrained(TOKEN_CLASSIFICATION, a, seed=3, labels=classes)
    platform = SoftwarePlatform(seed=1, xla=False, recompute=False)
    blocks, conversion = convert(TOKEN_CLASSIFICATION, source, a, platform, replace_layers=replace)
    model = assemble(blocks, token_shapes(24), ("logits",), [[block.name for block in blocks]], platform)
    if conversion is not None:
        conversion.carry_weights(source)
    data = batch(a)
    tags = np.random.default_rng(1).integers(0, classes + 1, data["input_ids"].shape) * data["input_mask"]
    theirs = source(
        input_ids=data["input_ids"], attention_mask=data["input_mask"], token_type_ids=data["segment_ids"],
        labels=tf.constant(np.where(tags > 0, tags - 1, -100)),
    )  # fmt: skip
    ours = model({name: data[name] for name in model.input_names})
    np.testing.assert_allclose(ours["logits"], theirs.logits, atol=1e-5, rtol=1e-5)
    objective, labelled = TagObjective(), {"labels": tf.constant(tags, tf.int32)}
    sums, counts = objective.sums(ours, labelled), objective.counts(labelled)
    np.testing.assert_allclose(sums[LOSS] / counts[LOSS], tf.reduce_mean(theirs.loss), rtol=1e-5)
    right = (np.argmax(theirs.logits, -1) == tags - 1)[tags > 0]
    assert float(sums[ACCURACY]) == right.sum() and float(counts[ACCURACY]) == right.size


def test_sentences_in_packs_have_the_logits_and_the_loss_of_sentences_alone() -> None:
    a, length, classes = architecture(), 24, 4
    source = untrained(TOKEN_CLASSIFICATION, a, seed=3, labels=classes)
    platform = SoftwarePlatform(seed=1, xla=False, recompute=False)
    data = batch(a, size=9, sequence_length=length)
    lengths = np.array([4, 24, 9, 7, 3, 12, 5, 6, 10])
    mask = (np.arange(length) < lengths[:, None]).astype("int32")
    tags = np.random.default_rng(1).integers(0, classes + 1, mask.shape) * mask
    samples = ArrayReader(
        token_features(length, a.vocab_size, classes),
        {**{name: data[name] * mask for name in ("input_ids", "segment_ids")}, "input_mask": mask, "labels": tags},
    )
    found: list[Any] = []
    for places in (None, 3):
        reader = rows_of(samples, lengths, places, seed=1)
        blocks, conversion = convert(TOKEN_CLASSIFICATION, source, a, platform)
        model = assemble(blocks, reader.spec.shapes, ("logits",), [[block.name for block in blocks]], platform)
        conversion.carry_weights(source)
        rows = {name: tf.constant(values) for name, values in reader.read(np.arange(reader.count)).items()}
        outputs = model({name: rows[name] for name in model.input_names})
        sums, counts = TagObjective().sums(outputs, rows), TagObjective().counts(rows)
        logits = outputs["logits"].numpy()
        found.append((float(sums[LOSS] / counts[LOSS]), logits if places is None else reader.of_samples(logits)))
        assert (SEQUENCES_PER_PACK in counts) is (places is not None)
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5)
    np.testing.assert_allclose(found[0][1] * mask[..., None], found[1][1], atol=1e-5)


def config_of(root: Path, name: str, **changes: Any) -> Path:
    config = {
        "bert_config": {
            "hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 64,
            "vocab_size": 40, "max_position_embeddings": 32, "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
        },
        "dataset_dir": str(root),
        "vocab_file": str(root / "vocab.txt"),
        "output_dir": str(root / "runs"),
        "max_seq_length": 16,
        "num_epochs": 6,
        "do_test": True,
        "global_batch": {"micro_batch_size": 8},
        "optimizer_opts": {"name": "AdamW", "learning_rate": {"max_learning_rate": 0.003}},
        "global_batches_per_log": 25,
        "enable_recomputation": False,
        "tensorboard": False,
        "execution": {"xla": False, "platform": "software", "device": "cpu", "precision": "float32"},
        "embedding_serialization_factor": 1,
        **changes,
    }  # fmt: skip
    path = root / f"{name}.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


def run(config: Path, *flags: str) -> int:
    return main(TOKEN_CLASSIFICATION, run_token_classification.run, ["--config", str(config), *flags])


@pytest.fixture(scope="module")
def trained(root: Path) -> Path:
    assert run(config_of(root, "padded")) == 0
    return root / "runs" / "padded"


def test_a_run_scores_entities_and_writes_predictions(root: Path, trained: Path) -> None:
    scores = json.loads((trained / "scores.json").read_text(encoding="utf-8"))
    assert set(scores) == {name + kind for name in ("f1", "precision", "recall") for kind in ("", "_test")}
    assert scores["f1"] > 0.9 and scores["f1_test"] > 0.9
    rows = (trained / "test_predictions.txt").read_text(encoding="utf-8").splitlines()
    test = (root / "test.txt").read_text(encoding="utf-8").splitlines()
    assert [" ".join(row.split()[:2]) for row in rows] == test
    facts = json.loads((trained / "dataset.json").read_text(encoding="utf-8"))
    assert facts["entities"] == {"PER": 200, "LOC": 200} and facts["words_cut"] == 0


def test_a_run_on_packs_scores_as_well(root: Path) -> None:
    changes = {"packing": {"max_sequences_per_pack": 3}, "num_epochs": 12}
    assert run(config_of(root, "packed", **changes)) == 0
    scores = json.loads((root / "runs" / "packed" / "scores.json").read_text(encoding="utf-8"))
    assert scores["f1"] > 0.9


def test_an_evaluation_says_the_same_and_one_text_has_its_entities(
    root: Path, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = str(trained)
    config = config_of(root, "again", do_training=False, pretrained_ckpt_path=start, vocab_file=None)
    assert run(config) == 0
    again, before = (
        json.loads((folder / "scores.json").read_text(encoding="utf-8"))
        for folder in (root / "runs" / "again", trained)
    )
    assert again == before
    capsys.readouterr()
    assert classify(["--checkpoint", start, "Anna vandam went to Paris and rome"]) == 0
    found = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [[kind, *words] for kind, _, *words in found] == [
        ["PER", "Anna", "vandam"], ["LOC", "Paris"], ["LOC", "rome"]
    ]  # fmt: skip
    assert classify(["--checkpoint", start, "one", "two"]) == 2
    assert "takes 1 text, not 2" in capsys.readouterr().err


def test_the_export_is_hugging_face_s_token_classifier(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = export(str(trained), tmp_path / "exported")
    assert outcome.head.model == "BertForTokenClassification"
    config = BertConfig.from_pretrained(str(tmp_path / "exported"))
    assert config.architectures == ["BertForTokenClassification"]
    assert config.id2label == {0: "O", 1: "B-LOC", 2: "B-PER", 3: "I-PER"}
    assert config.label2id == {name: number for number, name in config.id2label.items()}
    card = (tmp_path / "exported" / "README.md").read_text(encoding="utf-8")
    assert "AutoModelForTokenClassification" in card and "pipeline_tag: token-classification" in card
    assert set(open_pretrained(str(tmp_path / "exported"), "x").weights) >= {"classifier.weight", "classifier.bias"}
    text = "the clara was in oslo"
    outputs = []
    for origin in (trained, tmp_path / "exported"):
        assert classify(["--checkpoint", str(origin), "--max-seq-length", "16", text]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1] and "PER" in outputs[0]


def test_what_is_missing_is_said(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(config_of(root, "nowhere", dataset_dir=None)) == 2
    assert "dataset_dir is not set" in capsys.readouterr().err
