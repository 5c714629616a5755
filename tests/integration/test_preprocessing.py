"""Data preparation from text to records: structure, statistics, determinism, and error messages."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from data_utils.demo_corpus import write_demo_corpus
from data_utils.text import __main__ as whole
from data_utils.text import examples, sentences, vocabulary
from data_utils.tokenizer import read_vocabulary

pytestmark = pytest.mark.slow

LENGTH, PREDICTIONS, PIECES = 64, 10, 4000


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demo") / "corpus.txt"
    documents, words = write_demo_corpus(path, words=60_000, packages=())
    assert words >= 60_000
    assert documents > 20
    return path


def run(*arguments: object) -> int:
    return whole.main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def data_set(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("set")
    options = ["--max-seq-length", LENGTH, "--max-predictions", PREDICTIONS, "--vocab-size", PIECES]
    options += ["--duplicate-factor", 3, "--seed", 7]
    assert run("--text", text, "--output", folder, "--workers", 1, *options) == 0
    return folder


def read_records(folder: Path, length: int = LENGTH, most: int = PREDICTIONS) -> dict[str, np.ndarray]:
    from keras_extensions.backend import tf

    spec = {name: tf.io.FixedLenFeature([length], tf.int64) for name in ("input_ids", "input_mask", "segment_ids")}
    spec["masked_lm_positions"] = spec["masked_lm_ids"] = tf.io.FixedLenFeature([most], tf.int64)
    spec["masked_lm_weights"] = tf.io.FixedLenFeature([most], tf.float32)
    spec["next_sentence_labels"] = tf.io.FixedLenFeature([1], tf.int64)
    files = sorted(map(str, folder.glob("*.tfrecord")))
    batch = next(iter(tf.data.TFRecordDataset(files).batch(10**6)))
    return {name: value.numpy() for name, value in tf.io.parse_example(batch, spec).items()}


@pytest.fixture(scope="module")
def records(data_set: Path) -> dict[str, np.ndarray]:
    return read_records(data_set)


def ids(folder: Path) -> dict[str, int]:
    return {piece: number for number, piece in enumerate(read_vocabulary(folder / "vocab.txt").pieces)}


def restored(records: dict[str, np.ndarray]) -> np.ndarray:
    out = records["input_ids"].copy()
    rows, slots = np.nonzero(records["masked_lm_weights"])
    out[rows, records["masked_lm_positions"][rows, slots]] = records["masked_lm_ids"][rows, slots]
    return out


def test_structure(data_set: Path, records: dict[str, np.ndarray]) -> None:
    names = ids(data_set)
    original, lengths = restored(records), records["input_mask"].sum(1)
    separators = original == names["[SEP]"]
    assert (original[:, 0] == names["[CLS]"]).all()
    assert (separators.sum(1) == 2).all()
    assert ((original == names["[CLS]"]).sum(1) == 1).all()
    assert not (original == names["[MASK]"]).any()
    columns = np.arange(LENGTH)
    first = separators.argmax(1)
    assert (original[np.arange(len(original)), lengths - 1] == names["[SEP]"]).all()
    assert np.array_equal(records["input_mask"], columns < lengths[:, None])
    assert np.array_equal(records["input_ids"] == names["[PAD]"], columns >= lengths[:, None])
    assert np.array_equal(records["segment_ids"], (columns > first[:, None]) & (columns < lengths[:, None]))
    weights, positions = records["masked_lm_weights"], records["masked_lm_positions"]
    assert set(np.unique(weights)) == {0.0, 1.0}
    assert (np.diff(weights, axis=1) <= 0).all()  # padding comes last
    assert (positions[weights == 0] == 0).all()
    real_pairs = (weights[:, :-1] > 0) & (weights[:, 1:] > 0)
    assert (np.diff(positions, axis=1)[real_pairs] > 0).all()
    assert ((positions < lengths[:, None]) | (weights == 0)).all()


def documents(folder: Path) -> set[str]:
    texts = (path.read_text(encoding="utf-8") for path in folder.glob("sentences_*.txt"))
    return {document.strip() for text in texts for document in text.split("\n\n") if document.strip()}


def test_held_out_documents(data_set: Path, tmp_path: Path) -> None:
    """Whole documents of about a tenth are held out, the same ones for another length, seed and number of workers."""
    common = ["--sentences", data_set / "corpus", "--vocab-file", data_set / "vocab.txt", "--validation-fraction", 0.1]
    sizes = {"short": [32, 10, 0.3, 7, 1], "long": [128, 20, 0.15, 8, 2]}
    held_out = {}
    for name, (length, predictions, share, seed, workers) in sizes.items():
        options = ["--max-seq-length", length, "--max-predictions", predictions, "--masked-lm-prob", share]
        options += ["--seed", seed, "--workers", workers]
        assert run(*common, "--output", tmp_path / name, *options, "--duplicate-factor", 2) == 0
        held_out[name] = documents(tmp_path / name / "validation" / "corpus")
    everything = documents(data_set / "corpus")
    assert held_out["short"] == held_out["long"] < everything
    manifests = [json.loads((tmp_path / "short" / part / "manifest.json").read_text()) for part in (".", "validation")]
    kept, left_out = (manifest["totals"]["documents"] for manifest in manifests)
    assert left_out == len(held_out["short"]) and kept + left_out == len(everything)
    assert manifests[0]["settings"]["duplicate_factor"] == 2
    assert manifests[1]["settings"]["duplicate_factor"] == 1  # the same masks each time
    records = read_records(tmp_path / "short" / "validation", 32, 10)
    assert len(records["input_ids"]) == manifests[1]["totals"]["records"]
    for folder, share in ((".", 0.3), ("validation", 0.15)):  # held-out losses are those of one share of masked words
        records = read_records(tmp_path / "short" / folder, 32, 10)
        most = np.round(records["input_mask"].sum(1) * share)
        assert records["masked_lm_weights"].sum() / most.sum() == pytest.approx(1.0, abs=0.02)
    # Fewer words are masked in training: packs of held-out rows are still large enough for 15 %.
    few = ["--masked-lm-prob", 0.05, "--max-predictions", 7, "--pack", 3, "--workers", 1]
    assert run(*common, "--output", tmp_path / "few", *few) == 0
    packs = [tmp_path / "few" / "packed" / part / "manifest.json" for part in (".", "validation")]
    most = [json.loads(path.read_text())["settings"]["max_predictions_per_pack"] for path in packs]
    assert most[0] == most[1]
    # A command that is refused writes nothing into the data set.
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "long").rglob("*")}
    assert examples.main([*map(str, common), "--output", str(tmp_path / "long"), "--seed", "9", "--workers", "1"]) == 2
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "long").rglob("*")} == before
    # A later preparation that holds out nothing removes the held-out records of this one.
    remade = ["--sentences", data_set / "corpus", "--vocab-file", data_set / "vocab.txt", "--workers", 1]
    assert run(*remade, "--output", tmp_path / "short", "--overwrite") == 0
    assert not (tmp_path / "short" / "validation").exists()


@pytest.mark.parametrize(
    "option", [("--documents-share", 0.5), ("--min-characters", 9), ("--max-bad-articles", 2), ("--join-lines",)]
)
def test_of_sentences_no_option_of_the_text_is_passed_over(
    option: tuple[object, ...], data_set: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = ["--sentences", data_set / "corpus", "--vocab-file", data_set / "vocab.txt", "--output", tmp_path / "again"]
    assert run(*made, *option) == 2
    assert f"error: {option[0]}: " in capsys.readouterr().err and not (tmp_path / "again").exists()


def test_masking_statistics(data_set: Path, records: dict[str, np.ndarray]) -> None:
    names = ids(data_set)
    rows, slots = np.nonzero(records["masked_lm_weights"])
    labels = records["masked_lm_ids"][rows, slots]
    inputs = records["input_ids"][rows, records["masked_lm_positions"][rows, slots]]
    counts = records["masked_lm_weights"].sum(1)
    lengths = records["input_mask"].sum(1)
    assert np.array_equal(counts, np.minimum(np.clip(np.round(lengths * 0.15), 1, PREDICTIONS), lengths - 3))
    assert len(labels) > 20_000
    assert counts.sum() / lengths.sum() == pytest.approx(0.15, abs=0.01)
    assert (inputs == names["[MASK]"]).mean() == pytest.approx(0.8, abs=0.01)
    assert (inputs == labels).mean() == pytest.approx(0.1, abs=0.01)
    unmasked = np.ones_like(records["input_ids"], bool)
    unmasked[rows, records["masked_lm_positions"][rows, slots]] = False
    assert not (records["input_ids"][unmasked] == names["[MASK]"]).any()
    assert records["next_sentence_labels"].mean() == pytest.approx(0.5, abs=0.03)
    assert 0.05 < (lengths < LENGTH - 20).mean() < 0.3  # short sequences: a tenth, and the ends of documents


def test_segments_are_text_from_the_corpus(data_set: Path, records: dict[str, np.ndarray]) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.BertTokenizerFast(vocab_file=str(data_set / "vocab.txt"))
    names = ids(data_set)
    text = (data_set / "corpus" / "sentences_000.txt").read_text(encoding="utf-8")
    documents = [block.split("\n") for block in text.strip().split("\n\n")]
    streams, ends = [], []  # " 12 7 3 " per document, and where its sentences end
    for document in documents:
        tokens = tokenizer(document, add_special_tokens=False)["input_ids"]
        streams.append(" " + " ".join(str(token) for sentence in tokens for token in sentence) + " ")
        ends.append(np.cumsum([len(sentence) for sentence in tokens]))
    checked = Counter()
    for row, label in zip(restored(records)[:400], records["next_sentence_labels"][:400, 0]):
        first, second = np.flatnonzero(row == names["[SEP]"])
        a, b = (" " + " ".join(map(str, part)) + " " for part in (row[1:first], row[first + 1 : second]))
        homes_a = {number for number, stream in enumerate(streams) if a in stream}
        homes_b = {number for number, stream in enumerate(streams) if b in stream}
        assert homes_a
        assert homes_b
        if label == 0:  # B follows A in one document, except for tokens that were cut off to make the pair fit
            home = min(homes_a & homes_b)
            assert streams[home].rfind(b) >= streams[home].find(a)
        checked[int(label)] += 1
        checked["same document"] += label == 1 and len(homes_a) == 1 and homes_a == homes_b
    assert checked[0] > 100
    assert checked[1] > 100
    assert checked["same document"] == 0


def test_manifest(data_set: Path, records: dict[str, np.ndarray]) -> None:
    manifest = json.loads((data_set / "manifest.json").read_text())
    assert (manifest["format"], manifest["version"]) == ("bert-pretraining", 1)
    assert manifest["settings"] == {
        "max_seq_length": LENGTH, "max_predictions_per_seq": PREDICTIONS, "vocab_size": PIECES, "seed": 7,
        "masked_lm_prob": 0.15, "short_seq_prob": 0.1, "duplicate_factor": 3, "whole_word_masking": False,
        "lower_case": True,
    }  # fmt: skip
    assert manifest["totals"]["records"] == len(records["input_ids"])
    digest = hashlib.sha256((data_set / "vocab.txt").read_bytes()).hexdigest()
    assert manifest["vocabulary"] == {"file": "vocab.txt", "sha256": digest, "size": PIECES}
    for entry in manifest["files"]:
        path = data_set / entry["name"]
        assert hashlib.sha256(path.read_bytes()).hexdigest() == entry["sha256"]
        assert path.stat().st_size == entry["bytes"]
        lines = path.with_suffix(".index").read_text().splitlines()
        assert len(lines) == entry["records"]
        assert sum(map(int, lines[-1].split())) == entry["bytes"]
    assert len(list(data_set.glob("*.tfrecord"))) == len(manifest["files"])


def test_entropy_and_counts_of_the_corpus(data_set: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.BertTokenizerFast(vocab_file=str(data_set / "vocab.txt"))
    text = (data_set / "corpus" / "sentences_000.txt").read_text(encoding="utf-8")
    lines = [line for line in text.split("\n") if line]
    counts = Counter(token for line in tokenizer(lines, add_special_tokens=False)["input_ids"] for token in line)
    shares = np.array(list(counts.values())) / counts.total()
    manifest = json.loads((data_set / "manifest.json").read_text())
    assert manifest["unigram_entropy_nats"] == pytest.approx(-(shares * np.log(shares)).sum(), rel=1e-9)
    totals = manifest["totals"]
    assert totals["tokens"] == counts.total()
    assert totals["unknown_tokens"] == counts[tokenizer.unk_token_id]
    assert totals["sentences"] == len(lines)
    assert totals["words"] == len(text.split())
    assert totals["documents"] == len(text.strip().split("\n\n"))


def test_separate_steps_give_the_same_records(text: Path, data_set: Path, tmp_path: Path) -> None:
    corpus, vocab, out = (tmp_path / name for name in ("corpus", "vocab.txt", "out"))
    common = ["--workers", "1"]
    assert sentences.main(["--text", str(text), "--output", str(corpus), *common]) == 0
    name = "sentences_000.txt"
    assert (corpus / name).read_bytes() == (data_set / "corpus" / name).read_bytes()
    assert vocabulary.main(["--sentences", str(corpus), "--output", str(vocab), "--vocab-size", str(PIECES)]) == 0
    assert vocab.read_bytes() == (data_set / "vocab.txt").read_bytes()
    arguments = ["--sentences", str(corpus), "--vocab-file", str(vocab), "--output", str(out), *common]
    settings = ["--max-seq-length", str(LENGTH), "--max-predictions", str(PREDICTIONS), "--seed", "7"]
    assert examples.main([*arguments, *settings, "--duplicate-factor", "3"]) == 0
    assert (out / "manifest.json").read_bytes() == (data_set / "manifest.json").read_bytes()


def test_whole_word_masking_and_another_seed(data_set: Path, tmp_path: Path) -> None:
    corpus = ["--sentences", data_set / "corpus", "--vocab-file", data_set / "vocab.txt", "--workers", 1]
    options = ["--max-seq-length", LENGTH, "--max-predictions", PREDICTIONS, "--duplicate-factor", 1]
    assert run(*corpus, *options, "--whole-word-masking", "--output", tmp_path / "words") == 0
    whole = read_records(tmp_path / "words")
    continues = np.array([piece.startswith("##") for piece in ids(data_set)])[restored(whole)]
    chosen = np.zeros(continues.shape, bool)
    rows, slots = np.nonzero(whole["masked_lm_weights"])
    chosen[rows, whole["masked_lm_positions"][rows, slots]] = True
    inside = (whole["segment_ids"][:, 1:] == whole["segment_ids"][:, :-1]) & continues[:, 1:]
    inside[:, 0] = False  # a segment may be cut within a word, and its first piece then continues nothing
    first = (restored(whole) == ids(data_set)["[SEP]"]).argmax(1)
    inside[np.arange(len(first)), first] = False
    assert inside.sum() > 1000
    assert (chosen[:, 1:] == chosen[:, :-1])[inside].all()
    assert chosen.sum() / whole["input_mask"].sum() == pytest.approx(0.15, abs=0.015)
    assert run(*corpus, *options, "--seed", 8, "--output", tmp_path / "seed") == 0
    assert not np.array_equal(read_records(tmp_path / "seed")["input_ids"][:50], whole["input_ids"][:50])


GOOD = "The cat sat on the mat. It was a fine mat and a fine cat.\n\n"
GOOD += "The dog ran in the park. It ran all the long day.\n"


def test_a_tiny_corpus_and_overwriting(tmp_path: Path) -> None:
    (tmp_path / "good.txt").write_text(GOOD)
    out = tmp_path / "out"
    arguments = ["--text", tmp_path / "good.txt", "--output", out, "--vocab-size", 200, "--min-characters", 1]
    assert run(*arguments, "--workers", 2) == 0
    before = (out / "manifest.json").read_bytes()
    (out / "stale_000.tfrecord").write_bytes(b"")
    assert run(*arguments, "--overwrite", "--workers", 1) == 0
    assert (out / "manifest.json").read_bytes() == before
    assert not (out / "stale_000.tfrecord").exists()
    totals = json.loads(before)["totals"]
    assert (totals["documents"], totals["sentences"], totals["words"]) == (2, 4, 27)


def test_packs_of_a_data_set_that_is_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "good.txt").write_text(GOOD)
    out = tmp_path / "out"
    arguments = ["--text", tmp_path / "good.txt", "--output", out, "--vocab-size", 200, "--min-characters", 1]
    assert run(*arguments, "--pack", 43) == 2
    assert "--pack 43: sequences have at least 3 tokens, and a pack 128; give 42 or less" in capsys.readouterr().err
    assert not out.exists()
    assert run(*arguments, "--pack", 2) == 0
    assert run(*arguments, "--overwrite", "--pack", 2) == 0
    assert "warning" not in capsys.readouterr().err
    assert run(*arguments, "--overwrite") == 0
    assert f"warning: {out / 'packed'} has packs of the data set that was replaced" in capsys.readouterr().err
