"""Shards of a corpus, the vocabulary, and the tokenizer, which is compared with Hugging Face's."""

from __future__ import annotations

import itertools
import re
import time
from pathlib import Path

import pytest

from data_utils.records.manifest import write_manifest
from data_utils.shards import Shard
from data_utils.text import corpus
from data_utils.text.corpus import corpus_shards, shard_bytes_of
from data_utils.text.examples import describe
from data_utils.text.tokens import tokenize_lines, tokenize_text
from data_utils.text.vocabulary import train_vocabulary
from data_utils.tokenizer import SPECIAL_TOKENS, load_tokenizer
from tests.support.real_data import real_data
from utilities.errors import UserError


def write(path: Path, documents: list[list[str]]) -> Path:
    path.write_text("".join("".join(line + "\n" for line in lines) + "\n" for lines in documents), encoding="utf-8")
    return path


def select_documents(shard: Shard) -> list[list[str]]:
    blocks = shard.content.decode().split("\n\n")
    return [block.strip("\n").split("\n") for block in blocks if block.strip("\n")]


def shards_of(files: list[Path], shard_bytes: int | None) -> list[Shard]:
    return list(corpus_shards(files, shard_bytes or shard_bytes_of(sum(path.stat().st_size for path in files))))


@pytest.mark.parametrize("shard_bytes", [1, 100, 1000, 10**6, None])
def test_every_document_is_in_one_shard_of_several(tmp_path: Path, shard_bytes: int | None) -> None:
    small = [[f"Sentence {a} of {b}, é." for a in range(1 + b % 7)] for b in range(101)]
    huge = [[f"Long {a}." for a in range(20000)]]
    files = [
        write(tmp_path / "a.txt", small + huge),
        write(tmp_path / "b.txt", huge),
        write(tmp_path / "c.txt", small[:1]),
    ]
    shards = shards_of(files, shard_bytes)
    read = [select_documents(shard) for shard in shards]
    assert [document for shard in read for document in shard] == small + huge + huge + small[:1]
    assert all(len(shard) >= 2 for shard in read)
    assert [shard.number for shard in shards] == list(range(len(shards)))
    assert sum(shard.size for shard in shards) == sum(path.stat().st_size for path in files)
    alone = shards_of([write(tmp_path / "d.txt", [["Only.", "This."]])], shard_bytes)
    assert [select_documents(shard) for shard in alone] == [[["Only.", "This."]]]


@pytest.mark.parametrize("shard_bytes", [1, 100, 1000, 10**6, None])
def test_shards_do_not_depend_on_how_the_corpus_is_split_into_files(tmp_path: Path, shard_bytes: int | None) -> None:
    documents = [[f"Sentence {a} of {b}, é." for a in range(1 + b % 7)] for b in range(301)]
    whole = [select_documents(shard) for shard in shards_of([write(tmp_path / "whole.txt", documents)], shard_bytes)]
    for bounds in ([0, 1, 2, 300, 301], [0, 50, 51, 150, 301], range(302)):
        files = [write(tmp_path / f"{first}.txt", documents[first:last]) for first, last in itertools.pairwise(bounds)]
        assert [select_documents(shard) for shard in shards_of(files, shard_bytes)] == whole


TEXT = [
    ["The quick brown fox jumps.", "Foxes jumped quickly, unlike Zoë's."],
    ["今天天气好。", "Jumping foxes jump."],
] * 30


@pytest.mark.parametrize("block", [1, 2, 3, 7, 1 << 20])
def test_documents_do_not_depend_on_the_blocks_that_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    text = b"\n\na\r\n\r\nb\nc\n\n\nd\n\r\ne\n\n\n\nf"
    path = tmp_path / "a.txt"
    path.write_bytes(text)
    monkeypatch.setattr(corpus, "BLOCK_BYTES", block)
    ends = [match.end() for match in re.finditer(rb"\n\r?\n", text)]
    whole = [text[start:end] for start, end in zip([0, *ends], ends)]
    assert list(corpus.read_documents([path])) == [*whole, text[ends[-1] :] + b"\n\n"]


def test_a_corpus_without_blank_lines_is_read_in_time(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"a sentence\n" * 6_000_000)  # took half a minute when each block was searched from the beginning
    started = time.process_time()
    assert [len(document) for document in corpus.read_documents([path])] == [66_000_002]
    assert time.process_time() - started < 5


def test_words_that_are_too_long_do_not_train_the_vocabulary(tmp_path: Path) -> None:
    words = [["a few words of a text"] * 30]
    long = [[*words[0], "x" * 101 + " few", "xyzab" * 40_000, "xyz" * 33 + "w"]]  # the last one has 100 letters
    plain = train_vocabulary([write(tmp_path / "a.txt", [[*words[0], "few", "xyz" * 33 + "w"]])], tmp_path / "a", 150)
    started = time.process_time()
    found = train_vocabulary([write(tmp_path / "b.txt", long)], tmp_path / "b", 150)
    assert time.process_time() - started < 5
    assert found.pieces == plain.pieces


def test_the_vocabulary_is_deterministic(tmp_path: Path) -> None:
    corpus = write(tmp_path / "a.txt", TEXT)
    first = train_vocabulary([corpus], tmp_path / "v1.txt", 300)
    second = train_vocabulary([corpus], tmp_path / "v2.txt", 300)
    assert first.sha256 == second.sha256
    assert first.pieces[:5] == list(SPECIAL_TOKENS)
    assert len(first.pieces) == 300  # filled up, because the corpus does not have that many
    assert {"fox", "jump", "今"} <= set(first.pieces)
    tokenizer = load_tokenizer(str(tmp_path / "v1.txt"), True)
    assert "[UNK]" not in tokenizer.encode("jumping zoe's 天 fox.", add_special_tokens=False).tokens
    cased = train_vocabulary([corpus], tmp_path / "cased.txt", 300, lower_case=False)
    assert "F" in cased.pieces
    assert load_tokenizer(str(cased.path), False).encode("Zoë", add_special_tokens=False).tokens[0].startswith("Z")


TWICE, ONCE = [chr(0x4E00 + number) for number in range(3000)], [chr(0x7000 + number) for number in range(200)]


@pytest.mark.parametrize(("size", "known"), [(300, 290), (1500, 1000), (3800, 3000), (6000, 3000)])
def test_ideographs_that_occur_twice_are_pieces_if_the_size_allows(tmp_path: Path, size: int, known: int) -> None:
    corpus = write(tmp_path / "a.txt", [["".join(TWICE[:1500]) + " word"], ["".join([*TWICE, *ONCE, *TWICE[1500:]])]])
    pieces = train_vocabulary([corpus], tmp_path / "v.txt", size).pieces
    assert len(pieces) == size
    assert known <= len(set(TWICE).intersection(pieces)) and not set(ONCE).intersection(pieces)


def test_rare_ideographs_do_not_replace_words(tmp_path: Path) -> None:
    letters = [chr(0xA000 + number) for number in range(1100)]  # Yi: more than the alphabet takes by frequency alone
    lines = [" ".join(letters)] * 20 + ["word " * 50] * 9000 + ["今天 今天"]
    pieces = train_vocabulary([write(tmp_path / "a.txt", [lines])], tmp_path / "v.txt", 3000).pieces
    assert "word" in pieces and "今" not in pieces


def test_the_settings_of_another_tokenizer_are_kept(tmp_path: Path) -> None:
    text = write(tmp_path / "a.txt", [["A few words, é and à."]])
    settings = tmp_path / "tokenizer_config.json"
    settings.write_text('{"do_lower_case": true, "model_max_length": 512}')
    for keep_accents in (False, True):
        with pytest.raises(UserError, match=r"tokenizer_config\.json: belongs to another vocabulary"):
            train_vocabulary([text], tmp_path / "vocab.txt", 150, keep_accents=keep_accents)
    settings.unlink()
    for _ in range(2):  # the same command again
        assert train_vocabulary([text], tmp_path / "vocab.txt", 150, keep_accents=True).rules.strip_accents is False


def test_an_empty_corpus_has_no_vocabulary(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the corpus is empty"):
        train_vocabulary([write(tmp_path / "a.txt", [["", "\u200b"]])], tmp_path / "v.txt", 300)
    assert not (tmp_path / "v.txt").exists()


def test_unknown_tokens_are_reported_at_the_end(tmp_path: Path) -> None:
    totals = {"records": 1, "documents": 1, "sentences": 1, "words": 9, "tokens": 1000, "unknown_tokens": 11}
    file = {"name": "a.tfrecord", "records": 1, "bytes": 20}
    write_manifest(tmp_path, {}, {"size": 100}, [file], totals, 1.0)
    *_, warning = describe(tmp_path).split("\n")
    assert "1.100%" in describe(tmp_path)
    assert warning.startswith("warning: ") and "--vocab-size" in warning
    write_manifest(tmp_path, {}, {"size": 100}, [file], {**totals, "unknown_tokens": 10}, 1.0)
    assert "warning" not in describe(tmp_path)


SAMPLES = [
    "Hello, World! It's 5 o'clock—isn't it?",
    "Zoë naïve café ÅNGSTRÖM straße İstanbul",
    "今天天气很好, 我们去 Berlin。",
    "tab\tnew\u00a0line \u200b zero\u0000width \ufffd",
    "supercalifragilisticexpialidocious " + "x" * 120,
    "emoji 😀 and maths ∑ x² ≤ ½",
    "[CLS] is not special here [MASK] [UNK]",
    "",
]


@pytest.mark.parametrize("name", ["vocab-bert-base-uncased.txt", "vocab-bert-base-chinese.txt"])
@pytest.mark.parametrize("lower_case", [True, False])
def test_tokenizer_equals_hugging_face(name: str, lower_case: bool) -> None:
    transformers = pytest.importorskip("transformers")
    path = real_data("vocab", name)
    theirs = transformers.BertTokenizer(str(path), do_lower_case=lower_case)
    ours = load_tokenizer(str(path), lower_case)
    article = real_data("wikipedia_en", "AA", "wiki_00").read_text(encoding="utf-8").split("\n")[3:60]
    chinese = real_data("wikipedia_zh", "AA", "wiki_00").read_text(encoding="utf-8").split("\n")[3:60]
    for text in [*SAMPLES[:6], *article, *chinese]:
        assert ours.encode(text, add_special_tokens=False).ids == theirs.convert_tokens_to_ids(theirs.tokenize(text))


def test_a_large_file_has_the_vocabulary_of_its_parts(tmp_path: Path) -> None:
    documents = [[f"w{number % 977} jumps.", TEXT[0][number % 2]] for number in range(25000)]
    whole = write(tmp_path / "whole.txt", documents)
    assert whole.stat().st_size > 1 << 20
    parts = [write(tmp_path / f"{i}.txt", documents[i : i + 5000]) for i in range(0, len(documents), 5000)]
    one = train_vocabulary([whole], tmp_path / "one.txt", 300)
    several = train_vocabulary(parts, tmp_path / "several.txt", 300)
    assert one.pieces == several.pieces


@pytest.mark.parametrize("name", ["vocab-bert-base-uncased.txt", "vocab-bert-base-chinese.txt"])
def test_words_tokenised_once_give_the_ids_of_whole_sentences(name: str) -> None:
    tokenizer = load_tokenizer(str(real_data("vocab", name)), True)
    lines = [*SAMPLES, "a | b ~ | x", "|||", "\u2028 a\u0301 . e\u0301,x \u0301", "\tq\x00\x01w ,", "(", ".,;:", " "]
    for folder in ("wikipedia_en", "wikipedia_zh"):
        lines += real_data(folder, "AA", "wiki_00").read_text(encoding="utf-8").split("\n")[:800]
    tokens, lengths = tokenize_lines("\n".join(lines).encode(), tokenizer)
    expected = [encoding.ids for encoding in tokenizer.encode_batch(lines, add_special_tokens=False)]
    assert lengths.tolist() == [len(ids) for ids in expected]
    assert tokens.tolist() == [token for ids in expected for token in ids]


def test_a_shard_as_tokens(tmp_path: Path) -> None:
    pieces = [*SPECIAL_TOKENS, "a", "b", "c"]
    (tmp_path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    text = b"a b\n\n\n\xe2\x80\x8b\nc c c\na\n\n\xe2\x80\x8b\n\nb\n"
    tokenizer = load_tokenizer(str(tmp_path / "vocab.txt"), True)
    shard = tokenize_text(text, tokenizer)
    assert shard.tokens.tolist() == [5, 6, 7, 7, 7, 5, 6]
    assert shard.sentence_starts == [0, 2, 5, 6, 7]
    assert shard.document_starts == [0, 1, 3, 4]
    carriage_returns = tokenize_text(text.replace(b"\n", b"\r\n"), tokenizer)
    assert carriage_returns.sentence_starts == shard.sentence_starts
    assert tokenize_text(b"", tokenizer).document_starts == [0]
