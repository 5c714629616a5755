"""What lies beside a vocabulary, compared with Hugging Face's tokenizer: added tokens and options of the normalizer."""

from __future__ import annotations

import json
import random
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers.models import WordPiece
from transformers import AutoTokenizer, BertTokenizerFast, PreTrainedTokenizerFast

from data_utils.text.__main__ import main as prepare
from data_utils.text.tokens import tokenize_lines
from data_utils.tokenizer import make_tokenizer, read_vocabulary
from data_utils.tokenizer_files import SPECIAL_TOKENS, USUAL_RULES
from tests.support.runs import read_json, write_json
from utilities.errors import UserError

LETTERS = "abcdefghiklmnoprstuvxyz0123456789éüßñ.,!-_()[]#"
PIECES = [*SPECIAL_TOKENS, "[unused0]", "[unused1]", *LETTERS, *(f"##{c}" for c in LETTERS), "paris", "the", "天", "气"]
TOKENS = [
    "paris", "COVID-19", "covid19", "é", "天气", "e.g.", "new york", "[E1]", "</s>", "_x_", "x", "ÉCOLE", "[unused1]",
    "Straße", "q!", "(a)", "天",
]  # fmt: skip
ODD = ["\u0301", "\x00", "\u3000", "İ", "\u200b", "\t", "SEP", "[SEP]", "[sep]"]
WAYS = ("added_tokens_decoder", "added_tokens.json", "tokenizer.json", "both", "additional_special_tokens")


def write_pieces(folder: Path, pieces: list[str] = PIECES) -> Path:
    path = folder / "vocab.txt"
    path.write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    write_json(folder / "config.json", {"model_type": "bert"})
    return path


def random_flags(rng: random.Random) -> dict[str, bool]:
    return {name: rng.random() < 0.4 for name in ("special", "normalized", "lstrip", "rstrip", "single_word")}


def write_random_tokenizer(folder: Path, way: str, rng: random.Random) -> Any:
    """Write a folder with random added tokens and options, and return Hugging Face's tokenizer of it."""
    vocabulary, tokens = write_pieces(folder), rng.sample(TOKENS, rng.randint(1, 5))
    options: dict[str, Any] = {"do_lower_case": rng.random() < 0.5, "strip_accents": rng.choice([True, False, None])}
    options["tokenize_chinese_chars"] = rng.random() < 0.5
    new = [token for token in tokens if token not in PIECES]
    ids = {token: PIECES.index(token) if token in PIECES else len(PIECES) + new.index(token) for token in tokens}
    if way in ("tokenizer.json", "both"):
        theirs = BertTokenizerFast(str(vocabulary), **options)
        theirs.add_tokens([AddedToken(token, **random_flags(rng)) for token in tokens])
        theirs.save_pretrained(folder)
        if way == "tokenizer.json":
            vocabulary.unlink()
    elif way == "added_tokens_decoder":
        described = {str(number): {"content": token, **random_flags(rng)} for token, number in ids.items()}
        write_json(folder / "tokenizer_config.json", {**options, way: described})
    elif way == "added_tokens.json":
        write_json(folder / "tokenizer_config.json", options)
        write_json(folder / "added_tokens.json", ids)
        write_json(folder / "special_tokens_map.json", {"additional_special_tokens": tokens[:1]})
    else:
        marked = {"__type": "AddedToken"}
        described = [rng.choice([token, {"content": token, **random_flags(rng), **marked}]) for token in tokens]
        write_json(folder / "tokenizer_config.json", {**options, way: described, "eos_token": "</s>"})
    return AutoTokenizer.from_pretrained(folder)


def random_text(rng: random.Random) -> str:
    words = [rng.choice([*TOKENS, *TOKENS, *PIECES, *ODD]) for _ in range(rng.randint(1, 9))]
    return "".join(word + rng.choice(["", " ", " ", "-", "."]) for word in words)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(12))
def test_texts_have_the_ids_of_hugging_face(way: str, seed: int, tmp_path: Path) -> None:
    rng = random.Random(f"{way} {seed}")
    theirs = write_random_tokenizer(tmp_path, way, rng)
    ours = read_vocabulary(tmp_path)
    assert ours.lower_case is theirs.do_lower_case
    assert [theirs.convert_ids_to_tokens(number) for number in range(len(theirs))] == ours.pieces
    (tmp_path / "again").mkdir()
    for name, content in ours.files(ours.lower_case).items():
        (tmp_path / "again" / name).write_bytes(content)
    again = read_vocabulary(tmp_path / "again")
    assert (again.pieces, again.rules, again.identity) == (ours.pieces, ours.rules, ours.identity)
    texts = [random_text(rng) for _ in range(30)]
    tokenizer = make_tokenizer(again, theirs.do_lower_case, special_tokens=True)
    for text in texts:
        read = tokenizer.encode(text, add_special_tokens=False).ids
        assert read == theirs(text, add_special_tokens=False)["input_ids"], text


@pytest.mark.parametrize("seed", range(12))
def test_corpora_are_read_word_by_word_as_whole_lines_are(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    write_random_tokenizer(tmp_path, "added_tokens_decoder", rng)
    vocabulary = read_vocabulary(tmp_path)
    tokenizer = make_tokenizer(vocabulary, bool(vocabulary.lower_case))
    lines = [random_text(rng) for _ in range(30)]
    expected = [encoding.ids for encoding in tokenizer.encode_batch(lines, add_special_tokens=False)]
    ids, lengths = tokenize_lines("\n".join(lines).encode(), tokenizer)
    assert (ids.tolist(), lengths.tolist()) == (list(chain.from_iterable(expected)), [len(line) for line in expected])


def test_a_normalizer_that_does_not_clean_text_is_followed(tmp_path: Path) -> None:
    BertTokenizerFast(str(write_pieces(tmp_path))).save_pretrained(tmp_path)
    content = read_json(tmp_path / "tokenizer.json")
    content["normalizer"]["clean_text"] = False
    write_json(tmp_path / "tokenizer.json", content)
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    vocabulary, text = read_vocabulary(tmp_path), "pa\x00ris the\x07"
    expected = theirs(text, add_special_tokens=False)["input_ids"]
    assert make_tokenizer(vocabulary, True, special_tokens=True).encode(text, add_special_tokens=False).ids == expected
    (tmp_path / "again").mkdir()
    for name, written in vocabulary.files(True).items():
        (tmp_path / "again" / name).write_bytes(written)
    assert read_vocabulary(tmp_path / "again").rules == vocabulary.rules
    assert expected != BertTokenizerFast(str(tmp_path / "vocab.txt"))(text, add_special_tokens=False)["input_ids"]


SETTINGS, SPECIAL, ADDED, CONFIG = (
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "config.json"
)  # fmt: skip
READ: dict[str, tuple[str, dict[str, Any]]] = {
    "ids that leave a gap": (ADDED, {"new": len(PIECES) + 1}),
    "id of another piece": (ADDED, {"new": 5}),
    "class of another project": (SETTINGS, {"tokenizer_class": "ElectraTokenizer", "do_lower_case": False}),
    "class without segments": (SETTINGS, {"tokenizer_class": "DistilBertTokenizer", "strip_accents": False}),
    "inputs without segments": (SETTINGS, {"model_input_names": ["input_ids", "attention_mask"]}),
    "words kept whole": (SETTINGS, {"never_split": ["[E1]", "paris"], "additional_special_tokens": ["[E1]"]}),
    "no words": (SETTINGS, {"do_basic_tokenize": False}),
    "class in config.json": (CONFIG, {"model_type": "bert", "tokenizer_class": "BertTokenizerFast"}),
}  # fmt: skip


def assert_reads_as_hugging_face(folder: Path, theirs: Any) -> None:
    vocabulary, rng = read_vocabulary(folder), random.Random(0)
    assert vocabulary.lower_case is not None
    tokenizer = make_tokenizer(vocabulary, vocabulary.lower_case, special_tokens=True)
    for text in ("The Film Was GOOD", "École [E1] new", *(random_text(rng) for _ in range(30))):
        read = tokenizer.encode(text, add_special_tokens=False).ids
        assert read == theirs(text, add_special_tokens=False)["input_ids"], text


@pytest.mark.parametrize("case", READ)
def test_unusual_settings_are_read_as_hugging_face_reads_them(case: str, tmp_path: Path) -> None:
    name, content = READ[case]
    write_pieces(tmp_path)
    write_json(tmp_path / name, content)
    assert_reads_as_hugging_face(tmp_path, AutoTokenizer.from_pretrained(tmp_path))


def test_a_config_from_before_types_of_models_has_a_tokenizer_of_bert(tmp_path: Path) -> None:
    write_pieces(tmp_path)
    write_json(tmp_path / CONFIG, {"hidden_size": 32})
    write_json(tmp_path / SETTINGS, {"do_lower_case": False})
    theirs = BertTokenizerFast(str(tmp_path / "vocab.txt"), do_lower_case=False)
    assert_reads_as_hugging_face(tmp_path, theirs)


@pytest.mark.parametrize("settings", [None, {}, {"tokenizer_class": "BertTokenizer"}, {"do_lower_case": True}])
@pytest.mark.parametrize("general", [False, True])
def test_settings_that_are_silent_do_not_leave_the_case_to_tokenizer_json(
    settings: dict[str, Any] | None, general: bool, tmp_path: Path
) -> None:
    """Hugging Face's class decides: that of BERT lower-cases by default, whatever the normalizer of the file does."""
    BertTokenizerFast(str(write_pieces(tmp_path)), do_lower_case=False, strip_accents=True).save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").unlink()
    (tmp_path / SETTINGS).unlink()
    if settings is not None:
        write_json(tmp_path / SETTINGS, settings)
    if general:
        write_json(tmp_path / CONFIG, {"model_type": "bert", "tokenizer_class": "PreTrainedTokenizerFast"})
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    assert_reads_as_hugging_face(tmp_path, theirs)
    is_of_bert = not general or "tokenizer_class" in (settings or {})
    assert read_vocabulary(tmp_path).lower_case is is_of_bert


@pytest.mark.parametrize("process", [True, False])
def test_a_tokenizer_that_was_built_step_by_step(process: bool, tmp_path: Path) -> None:
    """As in Hugging Face's course, chapter 6.8."""
    ids = {piece: number for number, piece in enumerate(PIECES)}
    built = Tokenizer(WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100))
    built.normalizer = normalizers.BertNormalizer(lowercase=True)
    built.pre_tokenizer = pre_tokenizers.BertPreTokenizer() if process else pre_tokenizers.Whitespace()
    built.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(token, ids[token]) for token in ("[CLS]", "[SEP]")],
    )
    names = {f"{token[1:-1].lower()}_token": token for token in SPECIAL_TOKENS}
    PreTrainedTokenizerFast(tokenizer_object=built, **names).save_pretrained(tmp_path)
    if process:
        assert_reads_as_hugging_face(tmp_path, AutoTokenizer.from_pretrained(tmp_path))
    else:
        with pytest.raises(UserError, match=r"pre_tokenizer.type is 'Whitespace'"):
            read_vocabulary(tmp_path)


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "no number": (ADDED, {"new": "5"}, ADDED),
    "no flag": (SETTINGS, {"added_tokens_decoder": {"9": {"content": "a", "special": 1}}}, SETTINGS),
    "other [CLS]": (SETTINGS, {"cls_token": "<s>"}, r"'<s>'.*input should have \[CLS\] first"),
    "other [SEP]": (SPECIAL, {"sep_token": {"__type": "AddedToken", "content": "</s>"}}, r"\[SEP\] after each text"),
    "other class": (SETTINGS, {"tokenizer_class": "RobertaTokenizer"}, f"{SETTINGS} beside it: RobertaTokenizer: "),
    "other class in config.json": (
        CONFIG,
        {"model_type": "bert", "tokenizer_class": "RobertaTokenizer"},
        f"{CONFIG} beside it: RobertaTokenizer: ",
    ),
    "white space that another token takes": (
        SETTINGS,
        {"additional_special_tokens": ["\n", {"__type": "AddedToken", "content": "a", "lstrip": True}]},
        "white space",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_followed_is_refused_in_one_line(case: str, tmp_path: Path) -> None:
    name, content, message = REFUSED[case]
    write_pieces(tmp_path)
    write_json(tmp_path / name, content)
    with pytest.raises(UserError, match=message) as error:
        read_vocabulary(tmp_path)
    assert "\n" not in str(error.value)


def test_a_vocabulary_and_a_tokenizer_that_differ_are_refused(tmp_path: Path) -> None:
    BertTokenizerFast(str(write_pieces(tmp_path))).save_pretrained(tmp_path)
    write_pieces(tmp_path, [piece.replace("[unused0]", "covid") for piece in PIECES])
    with pytest.raises(UserError, match=r"tokenizer\.json beside it has another piece 5; delete the one"):
        read_vocabulary(tmp_path)


def test_a_vocabulary_of_another_name_has_no_tokenizer_beside_it(tmp_path: Path) -> None:
    BertTokenizerFast(str(write_pieces(tmp_path))).save_pretrained(tmp_path)
    path = (tmp_path / "vocab.txt").rename(tmp_path / "words.txt")
    assert read_vocabulary(path).pieces == PIECES


def test_a_token_that_is_nothing_once_text_is_cleaned_is_refused(tmp_path: Path) -> None:
    write_pieces(tmp_path)
    write_json(tmp_path / "added_tokens.json", {"\u200b": len(PIECES)})
    with pytest.raises(UserError, match="is nothing once text is normalized"):
        make_tokenizer(read_vocabulary(tmp_path), True)


def test_accents_are_kept_by_a_vocabulary_of_ones_own_and_by_its_data_set(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text(
        "Der schöne Film war über Paris.\nEine Schöne ist schon da.\nParis war schon der Film.\n" * 40, encoding="utf-8"
    )
    options = ["--text", str(text), "--workers", "1", "--duplicate-factor", "1", "--max-seq-length", "32"]
    arguments = [*options, "--output", str(tmp_path / "data"), "--vocab-size", "150"]
    assert prepare([*arguments, "--keep-accents"]) == 0
    assert read_json(tmp_path / "data" / "manifest.json")["settings"]["strip_accents"] is False
    theirs, vocabulary = BertTokenizerFast.from_pretrained(tmp_path / "data"), read_vocabulary(tmp_path / "data")
    assert "schöne" in vocabulary.pieces and vocabulary.lower_case is True
    ours = make_tokenizer(vocabulary, True).encode("Schöne Über schon", add_special_tokens=False)
    assert ours.ids == theirs("Schöne Über schon", add_special_tokens=False)["input_ids"]
    assert prepare(arguments) == 2  # other settings
    assert prepare([*arguments, "--overwrite"]) == 0
    again = read_vocabulary(tmp_path / "data")
    assert "schone" in again.pieces and again.rules == USUAL_RULES
    more = ["--vocab-file", str(tmp_path / "data" / "vocab.txt"), "--output", str(tmp_path / "more")]
    text.write_text("Der Film war schon da.\nEine ist schon in Paris.\n" * 40, encoding="utf-8")  # no word is [UNK]
    assert prepare([*options, *more, "--keep-accents"]) == 0
    assert read_vocabulary(tmp_path / "more").rules.strip_accents is False


@pytest.mark.parametrize(
    ("settings", "more", "message"),
    [
        ({"do_lower_case": True}, [], "strips accents"),
        ({"do_lower_case": False}, [], "keeps capitals"),
        (None, ["--cased"], "keeps its accents anyway"),
    ],
)
def test_keeping_accents_against_the_tokenizer_is_refused(
    settings: Any, more: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_pieces(tmp_path)
    if settings:
        write_json(tmp_path / "tokenizer_config.json", settings)
    (tmp_path / "text.txt").write_text("a b.\n")
    paths = ["--text", str(tmp_path / "text.txt"), "--vocab-file", str(tmp_path), "--output", str(tmp_path / "data")]
    assert prepare([*paths, "--keep-accents", *more]) == 2
    assert message in capsys.readouterr().err


# Settings that the libraries have and that mean nothing for BERT, or are malformed.
EXAMPLES = [
    ("tokenizer_config.json", '{"do_lower_case": "yes"}'),
    ("tokenizer_config.json", '{"additional_special_tokens": "[E1]"}'),
    ("tokenizer_config.json", '{"mask_token": "<mask>"}'),
    ("tokenizer_config.json", '{"model_max_length": "64"}'),
    ("tokenizer_config.json", '{"padding_side": "left"}'),
    ("tokenizer_config.json", '{"truncation_side": "left"}'),
    ("tokenizer_config.json", '{"split_special_tokens": true}'),
    ("tokenizer_config.json", '{"auto_map": {"AutoTokenizer": ["own.Tokenizer", null]}}'),
    ("tokenizer_config.json", '{"clean_text": "yes"}'),
    ("tokenizer.json", '{"model": {"type": "BPE"}}'),
    ("tokenizer.json", '{"model": {"continuing_subword_prefix": "@@"}}'),
    ("tokenizer.json", '{"model": {"vocab": ["a"]}}'),
    ("tokenizer.json", '{"normalizer": {"type": "NFKC"}}'),
    ("tokenizer.json", '{"post_processor": null}'),
    ("tokenizer.json", '{"added_tokens": [{"id": 99999, "content": "new"}]}'),
]


@pytest.mark.parametrize(("file", "example"), EXAMPLES)
def test_a_setting_that_cannot_be_followed_is_refused(file: str, example: str, tmp_path: Path) -> None:
    BertTokenizerFast(str(write_pieces(tmp_path)), do_lower_case=False).save_pretrained(tmp_path)
    read_vocabulary(tmp_path)
    content = read_json(tmp_path / file)
    for name, value in json.loads(example).items():
        content[name] = {**content[name], **value} if isinstance(value, dict) and name in content else value
    write_json(tmp_path / file, content)
    with pytest.raises(UserError) as error:
        read_vocabulary(tmp_path)
    assert file in str(error.value) and "\n" not in str(error.value)
