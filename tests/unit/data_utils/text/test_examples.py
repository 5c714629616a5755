"""Data sets of tiny corpora: held-out documents, empty shards, and what earlier commands left in the folder."""

from __future__ import annotations

import contextlib
import json
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from data_utils.records.files import RecordFiles
from data_utils.text import examples
from data_utils.text.corpus import Corpus, read_corpus
from data_utils.text.examples import write_examples
from data_utils.text.instances import Settings
from data_utils.tokenizer import SPECIAL_TOKENS, Vocabulary, make_tokenizer
from tests.support.squad_files import write_vocabulary
from utilities.errors import UserError

SETTINGS = Settings(max_seq_length=32, max_predictions_per_seq=5, duplicate_factor=2)
DOCUMENTS = [f"document {n} has words.\nit ends here." for n in range(40)]


@pytest.fixture
def vocabulary(tmp_path: Path) -> Vocabulary:
    return write_vocabulary(tmp_path)


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return write_corpus(tmp_path / "corpus", DOCUMENTS)


def write_corpus(folder: Path, documents: list[str]) -> Corpus:
    folder.mkdir()
    (folder / "a.txt").write_text("\n\n".join(documents) + "\n")
    return read_corpus(folder)


def totals(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "manifest.json").read_text())["totals"]


@pytest.mark.parametrize(
    ("piece", "cased", "settings", "is_warned"),
    [
        ("A", False, None, True),
        ("A", True, None, False),
        ("A", False, "{}", False),
        ("a", False, None, False),
        ("a", True, None, False),
    ],
)
def test_a_vocabulary_that_looks_cased(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], piece: str, cased: bool, settings: str | None, is_warned: bool
) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, piece]))
    if settings is not None:  # Hugging Face's tokenizer lower-cases by default
        (tmp_path / "tokenizer_config.json").write_text(settings)
    examples.vocabulary_from_options(Namespace(keep_accents=False, vocab_file=tmp_path, extra_tokens=None, cased=cased))
    lines = capsys.readouterr().err
    assert ("vocab.txt seems to be a vocabulary of cased text" in lines) == is_warned
    lacks = "vocab.txt has no capitals, so that words with capitals are [UNK]; leave --cased out"
    assert (lacks in lines) == (cased and piece == "a")


@pytest.mark.parametrize(
    ("piece", "keep", "is_warned"), [("が", False, True), ("が", True, False), ("か", False, False)]
)
def test_a_vocabulary_with_marks_that_text_loses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], piece: str, keep: bool, is_warned: bool
) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, piece]), encoding="utf-8")
    arguments = Namespace(keep_accents=keep, vocab_file=tmp_path, extra_tokens=None, cased=False)
    vocabulary = examples.vocabulary_from_options(arguments)
    assert vocabulary is not None
    assert ("--keep-accents keeps them" in capsys.readouterr().err) == is_warned
    tokens = make_tokenizer(vocabulary, lower_case=True).encode(piece, add_special_tokens=False).tokens
    assert tokens == (["[UNK]"] if is_warned else [piece])  # Hugging Face's tokenizer


def test_a_shard_whose_documents_are_all_held_out_has_no_file(
    corpus: Corpus, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    """The smallest shards have two documents."""
    out = tmp_path / "out"
    write_examples(corpus, vocabulary, out, SETTINGS._replace(validation_fraction=0.6), unit_bytes=1)
    held_out = (out / "validation" / "corpus" / "sentences_000.txt").read_text().strip().split("\n\n")
    assert len(held_out) == 24 and set(held_out) < set(DOCUMENTS)
    kept = [document not in held_out for document in DOCUMENTS]
    files = [number for number in range(20) if any(kept[2 * number : 2 * number + 2])]
    assert 5 < len(files) < 20
    assert (totals(out)["documents"], totals(out / "validation")["documents"]) == (16, 24)
    records = RecordFiles(out, verify_checksums=True)
    assert [int(path.stem.removeprefix("wiki_")) for path in records.paths] == files
    assert records.count == totals(out)["records"]


@contextlib.contextmanager
def killed_before(folder: Path, number: int = 0) -> Iterator[None]:
    """Within the block, a command is killed before it writes a shard, of this number or a higher one, into a folder."""
    real = examples._write_shard

    def killed(output: Path, *others: Any) -> Any:
        if output == folder and others[-1].number >= number:
            raise KeyboardInterrupt
        return real(output, *others)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(examples, "_write_shard", killed)
        yield


def test_a_data_set_of_the_user_s_is_not_replaced_by_held_out_text(
    corpus: Corpus, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    own = write_corpus(tmp_path / "own", ["another text.\nit is for validation."] * 3)
    out = tmp_path / "out"
    write_examples(own, vocabulary, out / "validation", SETTINGS)
    (out / "validation" / "corpus").mkdir()
    sentences = out / "validation" / "corpus" / "sentences_000.txt"
    sentences.write_text("another text.\n")
    with pytest.raises(UserError, match=r"validation: is made with other settings .*duplicate_factor 2 there, 1 now"):
        write_examples(corpus, vocabulary, out, SETTINGS._replace(validation_fraction=0.5))
    assert sentences.read_text() == "another text.\n"


@pytest.mark.parametrize(("part", "message"), [("", "not all records are written"), ("validation", "has no")])
def test_the_data_set_of_a_killed_command_is_not_read(
    corpus: Corpus, vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, message: str
) -> None:
    out, settings = tmp_path / "out", SETTINGS._replace(validation_fraction=0.5)
    monkeypatch.setattr("data_utils.text.corpus.SMALLEST_SHARD", 100)  # several shards, also of held-out documents
    with killed_before(out / part, 1):
        write_examples(corpus, vocabulary, out, settings)
    assert (out / part / "wiki_000.tfrecord").exists()
    with pytest.raises(UserError, match=f"out: {message}") as caught:
        RecordFiles(out)
    assert "validation does" not in str(caught.value)


@pytest.mark.parametrize(
    ("documents", "settings", "message"),
    [
        ([" ", "\t"], SETTINGS, "the corpus is empty"),
        (["one sentence."], SETTINGS, "--no-next-sentence"),
        (
            ["one sentence.\nand another one."],
            SETTINGS._replace(validation_fraction=0.1),
            r"--validation-fraction 0\.1: the text of 30 bytes is too short",
        ),
    ],
)
def test_a_text_that_is_too_short_is_refused_and_the_folder_can_be_used_for_another_one(
    vocabulary: Vocabulary, tmp_path: Path, documents: list[str], settings: Settings, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        write_examples(write_corpus(tmp_path / "short", documents), vocabulary, tmp_path / "out", settings)
    one = write_corpus(tmp_path / "one", ["one sentence."])
    write_examples(one, vocabulary, tmp_path / "out", SETTINGS._replace(next_sentence=False))
    assert totals(tmp_path / "out")["documents"] == 1 and not (tmp_path / "out" / "validation").exists()


@pytest.mark.parametrize(("fraction", "count"), [(1e-6, 1), (0.999999, 39)])
def test_one_document_at_least_is_on_each_side(
    corpus: Corpus, vocabulary: Vocabulary, tmp_path: Path, fraction: float, count: int
) -> None:
    write_examples(corpus, vocabulary, tmp_path / "out", SETTINGS._replace(validation_fraction=fraction))
    assert totals(tmp_path / "out" / "validation")["documents"] == count
    assert totals(tmp_path / "out")["documents"] == 40 - count
    assert "held_out_parts_of" not in totals(tmp_path / "out")  # each is whole


def test_held_out_records_that_a_killed_command_left(corpus: Corpus, vocabulary: Vocabulary, tmp_path: Path) -> None:
    """Their documents must not be trained on by a data set that holds out none, and evaluated as if they were not."""
    out, held_out = tmp_path / "out", SETTINGS._replace(validation_fraction=0.5)
    with killed_before(out):
        write_examples(corpus, vocabulary, out, held_out)
    assert totals(out / "validation")["records"]
    (out / "validation" / "corpus" / ".sentences_000.txt.host-1.tmp").touch()
    with pytest.raises(UserError, match=r"validation: exists, .* delete it, or give --overwrite"):
        write_examples(corpus, vocabulary, out, SETTINGS)
    write_examples(corpus, vocabulary, out, held_out)  # resumes
    assert not list(out.rglob(".*"))
    with killed_before(out):
        write_examples(corpus, vocabulary, out, held_out._replace(validation_fraction=0.7), overwrite=True)
    assert not (out / "manifest.json").exists()  # its documents may be held out now
    write_examples(corpus, vocabulary, out, SETTINGS, overwrite=True)
    assert not (out / "validation").exists()
