"""What is held out of few and of many documents: how much, no row with something of both sides, and what is said."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import tensorflow as tf

from data_utils.text.corpus import Corpus, read_corpus
from data_utils.text.examples import describe, write_examples
from data_utils.text.held_out import choose_held_out, select
from data_utils.text.instances import Settings
from data_utils.tokenizer import SPECIAL_TOKENS, Vocabulary, read_vocabulary
from data_utils.workers import open_workers
from tests.support.runs import content
from tests.unit.data_utils.text.test_examples import totals

SENTENCES, WORDS = 3_000, 9
SETTINGS = Settings(max_seq_length=32, max_predictions_per_seq=5, duplicate_factor=1, validation_fraction=0.05)
FIRST_WORD = len(SPECIAL_TOKENS)


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    path = tmp_path_factory.mktemp("pieces") / "vocab.txt"
    path.write_text("\n".join([*SPECIAL_TOKENS, *(f"word{number}" for number in range(SENTENCES))]) + "\n")
    return read_vocabulary(path)


def corpus_of(folder: Path, sizes: list[int], first: int = 0) -> Corpus:
    """Return a corpus whose documents have these numbers of sentences, each of a word of its own."""
    documents = []
    for size in sizes:
        documents.append("".join(" ".join([f"word{first + number}"] * WORDS) + "\n" for number in range(size)))
        first += size
    folder.mkdir(exist_ok=True)
    (folder / "sentences.txt").write_text("\n".join(documents) + "\n")
    return read_corpus(folder)


def rows(folder: Path) -> list[list[int]]:
    """Return the sentences of each row, in order, read by TensorFlow alone."""
    found = []
    for path in sorted(folder.glob("*.tfrecord")):
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            features = tf.train.Example.FromString(record).features.feature
            values = {name: list(feature.int64_list.value) for name, feature in features.items()}
            ids = values["input_ids"]
            for place, piece in zip(values["masked_lm_positions"], values["masked_lm_ids"]):
                ids[place] = piece if piece else ids[place]
            found.append(sorted({each - FIRST_WORD for each in ids if each >= FIRST_WORD}))
    return found


@pytest.mark.parametrize("next_sentence", [False, True])
@pytest.mark.parametrize(("sizes", "parts_of"), [([SENTENCES], 1), ([1200, 1300, 500], 3), ([2900, *[2] * 50], None)])
def test_of_few_documents_parts_are_held_out(
    vocabulary: Vocabulary, tmp_path: Path, sizes: list[int], parts_of: int | None, next_sentence: bool
) -> None:
    out, corpus = tmp_path / "out", corpus_of(tmp_path / "corpus", sizes)
    write_examples(corpus, vocabulary, out, SETTINGS._replace(next_sentence=next_sentence))
    trained, held_out = rows(out), rows(out / "validation")
    on_sides = [{sentence for row in side for sentence in row} for side in (trained, held_out)]
    assert not on_sides[0] & on_sides[1]
    if not next_sentence:  # pairs leave out sentences that find no other
        assert on_sides[0] | on_sides[1] == set(range(SENTENCES))
        for row in trained + held_out:  # no row goes on after a cut
            assert row == list(range(row[0], row[-1] + 1))
    size = (out / "validation" / "corpus" / "sentences_000.txt").stat().st_size
    assert size / corpus.files[0].stat().st_size == pytest.approx(0.05, abs=0.005)
    share = totals(out / "validation")["tokens"] / (SENTENCES * WORDS)
    assert parts_of is None or totals(out)["held_out_parts_of"] == totals(out)["documents"] == parts_of
    assert f"held out: parts of {totals(out)['held_out_parts_of']} document" in describe(out)
    assert f", {share:.1%} of the text" in describe(out)


def test_of_many_documents_those_of_the_smallest_digests_are_held_out(vocabulary: Vocabulary, tmp_path: Path) -> None:
    """They are those of earlier versions."""
    out, corpus = tmp_path / "out", corpus_of(tmp_path / "corpus", [5] * 600)
    write_examples(corpus, vocabulary, out, SETTINGS)
    documents = corpus.files[0].read_bytes().strip().split(b"\n\n")
    digests = [int(hashlib.blake2b(document, digest_size=8).hexdigest(), 16) / 2**64 for document in documents]
    expected = [document for document, digest in zip(documents, digests) if digest < 0.05]
    held_out = (out / "validation" / "corpus" / "sentences_000.txt").read_bytes()
    assert held_out == b"".join(document + b"\n\n" for document in expected)
    assert totals(out)["documents"] == 600 - len(expected) and "held_out_parts_of" not in totals(out)
    share = len(expected) / 600
    assert f"held out: {len(expected)} documents, {share:.1%} of the text" in describe(out)


def test_parts_are_the_same_for_all_lengths_and_workers(vocabulary: Vocabulary, tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path / "corpus", [700, 800, 900, 600])
    write_examples(corpus, vocabulary, tmp_path / "out", SETTINGS, unit_bytes=50_000)
    with open_workers(2, tmp_path / "two") as workers:
        write_examples(corpus, vocabulary, tmp_path / "two", SETTINGS, workers, unit_bytes=50_000)
    assert content(tmp_path / "out") == content(tmp_path / "two")
    write_examples(corpus, vocabulary, tmp_path / "long", SETTINGS._replace(max_seq_length=128, seed=1))
    parts = [tmp_path / name / "validation" / "corpus" / "sentences_000.txt" for name in ("out", "long")]
    assert parts[0].read_bytes() == parts[1].read_bytes()


def test_a_part_that_occurs_twice_is_on_one_side(tmp_path: Path) -> None:
    document = corpus_of(tmp_path / "corpus", [2000]).files[0].read_bytes()
    (tmp_path / "corpus" / "copy.txt").write_bytes(document)
    chosen = choose_held_out(read_corpus(tmp_path / "corpus").files, 0.1)
    sides = [set(select(document + document, chosen, side).split(b"\n")) - {b""} for side in (True, False)]
    assert not sides[0] & sides[1] and len(sides[0] | sides[1]) == 2000
