"""Tagged sentences: entities and scores in all schemes, the file formats, and tags of word pieces."""

from __future__ import annotations

import json
import random
import unicodedata
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from transformers.models.bert.tokenization_bert import BasicTokenizer

from data_utils.tagged_sentences import CLUENER, TEST, TRAIN, VALIDATION, are_entity_tags, read_sentences, usual_tags
from data_utils.token_classification import (
    encode_words,
    entity_scores,
    find_entities,
    prediction_lines,
    word_scores,
    word_spans,
)
from data_utils.tokenizer import load_tokenizer
from tests.support.fine_tuning_runs import TAGGED_PIECES as PIECES
from tests.support.fine_tuning_runs import write_pieces
from utilities.errors import UserError

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
    assert find_entities(tags.split()) == ENTITIES[tags]


@pytest.mark.parametrize(("expected", "predicted", "scores"), SCORES)
def test_scores_are_those_of_seqeval(expected: list[str], predicted: list[str], scores: tuple[float, ...]) -> None:
    result = entity_scores([tags.split() for tags in expected], [tags.split() for tags in predicted])
    assert tuple(result[""][name] for name in ("precision", "recall", "f1")) == pytest.approx(scores)
    assert sum(part["entities"] for kind, part in result.items() if kind) == result[""]["entities"]


SCHEMES = {  # letters of: an entity's only word, first, middle, last
    "IOB2": "BBII", "IOE2": "EIIE", "BIOES": "SBIE", "BMES": "SBME", "BILOU": "UBIL"
}  # fmt: skip


@pytest.mark.parametrize("scheme", [*SCHEMES, "IOB1"])
@pytest.mark.parametrize("typed", [True, False])
def test_entities_of_every_scheme_are_found(scheme: str, typed: bool) -> None:
    chance = random.Random(scheme)
    for _ in range(200):
        tags: list[str] = []
        entities = []
        while len(tags) < 12:
            kind = chance.choice(["PER", "LOC"]) if typed else "_"
            length = chance.choice([0, 1, 1, 2, 4])
            follows = bool(entities) and entities[-1][2] == len(tags) - 1 and entities[-1][0] == kind
            only, first, middle, last = SCHEMES.get(scheme, "BBII" if follows else "IIII")
            marks = [first, *[middle] * (length - 2), last] if length > 1 else [only]
            if length:
                entities.append((kind, len(tags), len(tags) + length - 1))
            tags += [f"{mark}-{kind}" if typed else mark for mark in marks] if length else ["O"]
        assert are_entity_tags(tags)
        assert find_entities(tags) == entities


def test_tags_without_a_prefix_are_scored_by_word() -> None:
    expected, predicted = [["DET", "NOUN", "VERB"], ["NOUN", "X"]], [["DET", "NOUN", "NOUN"], ["DET", "ADJ"]]
    result = word_scores(expected, predicted)  # compared with the definitions, by hand
    assert result[""]["accuracy"] == 2 / 5
    assert [result[tag]["f1"] for tag in ("DET", "NOUN", "VERB", "X", "ADJ")] == pytest.approx([2 / 3, 1 / 2, 0, 0, 0])
    assert result[""]["macro_f1"] == pytest.approx((2 / 3 + 1 / 2) / 5)
    assert (result[""]["precision"], result[""]["recall"]) == pytest.approx(((1 / 2 + 1 / 2) / 5, (1 + 1 / 2) / 5))
    cut = word_scores(expected, [["DET", "NOUN", "_"], ["NOUN", "X"]])
    assert cut[""]["accuracy"] == 4 / 5 and set(cut) == {"", "DET", "NOUN", "VERB", "X"}  # a cut word is no tag
    assert cut[""]["macro_f1"] == pytest.approx((1 + 1 + 0 + 1) / 4) and cut["VERB"]["recall"] == 0
    assert not are_entity_tags({"O", "PER"}) and are_entity_tags({"O"}) and are_entity_tags({"B", "I"})


CONLL_U = """# sent_id = 1
# text = Vámonos al mar
1-2\tVámonos\t_\t_
1\tVamos\tir\tVERB
2\tnos\tnosotros\tPRON
2.1\tya\tya\tADV
3\t#\t#\tSYM
"""
COLUMN_FILES = [  # text, columns, words, tags
    (CONLL_U, (2, 4), [["Vamos", "nos", "#"]], [["VERB", "PRON", "SYM"]]),
    ("# id 7\tdomain=en\nEU _ _ B-ORG\n", (None, None), [["EU"]], [["B-ORG"]]),
    ("#EU B-ORG\n# O\n\n# O\n", (None, None), [["#EU", "#"], ["#"]], [["B-ORG", "O"], ["O"]]),
    ("1 EU B-ORG\n2 acts O\n", (2, None), [["EU", "acts"]], [["B-ORG", "O"]]),
    ("O EU\nB-X acts\n", (2, 1), [["EU", "acts"]], [["O", "B-X"]]),
    ("2019 O\n2020 B-X\n", (1, None), [["2019", "2020"]], [["O", "B-X"]]),
    ("the DET\nking NOUN\n", (None, None), [["the", "king"]], [["DET", "NOUN"]]),
    ("中 B\n国 E\n人 S\n", (None, None), [["中", "国", "人"]], [["B", "E", "S"]]),
    ("new york\tB-LOC\n\nthe\tO\nO 'Neill \t B-PER\n", (None, None), [["new york"], ["the", "O 'Neill"]],
     [["B-LOC"], ["O", "B-PER"]]),
    ("-DOCSTART- O\n\n# text = a b\n#a b\t\tNNP\tB-X\n", (None, None), [["#a b"]], [["B-X"]]),
    ("# not a comment B-X\nEU\tO\tO\tO\tO\n", (None, None), [["#", "EU"]], [["B-X", "O"]]),
    ("gustave b-PER\neiffel i-PER\nwas o\n", (None, None), [["gustave", "eiffel", "was"]], [["B-PER", "I-PER", "O"]]),
    ("Eiffel PER-B\nwas O\nin O\nNew LOC_B\nYork LOC_I\n", (None, None), [["Eiffel", "was", "in", "New", "York"]],
     [["B-PER", "O", "O", "B-LOC", "I-LOC"]]),
    ("a o\nb b\nc i\n", (None, None), [["a", "b", "c"]], [["O", "B", "I"]]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "columns", "words", "tags"), COLUMN_FILES)
def test_columns_are_chosen_and_comments_are_read(
    tmp_path: Path, text: str, columns: tuple[int | None, int | None], words: list[list[str]], tags: list[list[str]]
) -> None:
    (tmp_path / "train.txt").write_text(text, encoding="utf-8")
    sentences = read_sentences(str(tmp_path), TRAIN, *columns)
    assert (sentences.words, sentences.tags) == (words, tags)


def test_predictions_of_words_with_blanks_have_tabs(tmp_path: Path) -> None:
    for text, line in (("new york\tB-LOC\n", "new york\tB-LOC\tO"), ("york\tB-LOC\n", "york B-LOC O")):
        (tmp_path / "train.txt").write_text(text, encoding="utf-8")
        assert list(prediction_lines(read_sentences(str(tmp_path), TRAIN), [["O"]])) == [line, ""]


def test_a_test_file_may_have_words_only(tmp_path: Path) -> None:
    (tmp_path / "test.txt").write_text("EU\nacts\n\nBonn\n", encoding="utf-8")
    sentences = read_sentences(str(tmp_path), TEST)
    assert (sentences.words, sentences.tags) == ([["EU", "acts"], ["Bonn"]], None)
    (tmp_path / "test.txt").write_text("1\tEU\n2\tacts\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"test\.txt: all words are numbers"):
        read_sentences(str(tmp_path), TEST)
    assert read_sentences(str(tmp_path), TEST, 2, 3).words == [["EU", "acts"]]


def test_changes_of_tags_and_columns_are_told(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("a b-PER\nb o\n\nnew york o\n\nthe x o\n", encoding="utf-8")
    first, second = read_sentences(str(tmp_path), TRAIN).notes
    assert first == "the tags b-PER, o are read as B-PER, O"
    assert second.startswith("2 sentences have another number of columns than the first one (line 4 first)")
    assert usual_tags(["o", "noun"]) == usual_tags(["O", "B-X"]) == usual_tags(["b", "i"]) == {}
    assert usual_tags(["NN-B", "DT"]) == usual_tags(["O", "B-I", "I-I"]) == usual_tags(["O", "X-B", "NOUN"]) == {}


TEXT = "Gustave Eiffel was in (Paris) 巴黎."
SPANS = [(0, 14, "PER"), (23, 28, "LOC"), (30, 32, "LOC")]
LISTS = [list(span) for span in SPANS]
OBJECTS = [{"start": begin, "end": end, "label": kind} for begin, end, kind in SPANS]
OFFSETS = [{"id": end, "label": kind, "start_offset": begin, "end_offset": end} for begin, end, kind in SPANS]
MARKED = [{"start": begin, "end": end, "text": TEXT[begin:end], "labels": [kind]} for begin, end, kind in SPANS]
RESULTS = [{"value": {"choices": ["good"]}, "type": "choices"}, *({"value": each, "type": "labels"} for each in MARKED)]
CANCELLED = {"was_cancelled": True, "result": []}
SPAN_FILES = {  # the same entities, as tools export them
    "doccano": {"text": TEXT, "labels": [LISTS[0], LISTS[2], LISTS[1]]},
    "doccano, label": {"id": 3, "text": TEXT, "label": LISTS},
    "doccano, relations": {"text": TEXT, "entities": OFFSETS, "relations": []},
    "spaCy": [TEXT, {"entities": LISTS}],
    "spaCy's Doc": {"text": TEXT, "ents": OBJECTS, "tokens": [{"id": 0, "start": 0, "end": 7}]},
    "Prodigy": {"text": TEXT, "spans": [{**OBJECTS[0], "token_end": 1}, *OBJECTS[1:]], "answer": "accept"},
    "Label Studio": {
        "data": {"text": TEXT}, "annotations": [CANCELLED, {"was_cancelled": False, "result": RESULTS}]
    },
    "Label Studio, short": {"text": TEXT, "label": MARKED},
}  # fmt: skip


@pytest.mark.parametrize("form", SPAN_FILES)
@pytest.mark.parametrize("as_array", [False, True])
def test_entities_that_are_marked_by_character_are_read(form: str, as_array: bool, tmp_path: Path) -> None:
    rows = [SPAN_FILES[form], SPAN_FILES[form]]
    lines = json.dumps(rows, indent=1, ensure_ascii=False) if as_array else "\n".join(map(json.dumps, rows))
    (tmp_path / "train.json").write_text(lines, encoding="utf-8")
    sentences = read_sentences(str(tmp_path), TRAIN)
    tags = ["B-PER", "I-PER", "O", "O", "O", "B-LOC", "O", "B-LOC", "I-LOC", "O"]
    words = ["Gustave", "Eiffel", "was", "in", "(", "Paris", ")", "巴", "黎", "."]
    assert (sentences.words, sentences.tags, list(sentences.notes)) == ([words] * 2, [tags] * 2, [])
    for line in prediction_lines(sentences, sentences.tags):
        assert json.loads(line)["text"] == TEXT
        assert json.loads(line)["labels"] == [[0, 14, "PER"], [23, 28, "LOC"], [30, 32, "LOC"]]


def test_spans_that_are_left_out_or_widened_are_counted(tmp_path: Path) -> None:
    rows = [
        {"text": "Eiffel's tower", "labels": [[0, 4, "PER"], [0, 14, "ORG"], [9, 14, "LOC"]]},
        {"text": "the  film", "labels": [[4, 5, "GAP"]]},
        {"data": {"text": "nobody"}, "annotations": []},
        {"data": {"text": "a"}, "annotations": [{"result": []}, {"result": []}]},
    ]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    sentences = read_sentences(str(tmp_path), TRAIN)
    assert sentences.tags == [["B-ORG", "I-ORG", "I-ORG", "I-ORG"], ["O", "O"], ["O"]]
    assert list(sentences.notes) == [
        "1 texts that nobody has marked, or accepted, are left out",
        "1 annotations of texts that have another one before are left out",
        "3 entities overlap an earlier one and are left out",
    ]
    (tmp_path / "dev.json").write_text(json.dumps({"text": "Eiffel's", "labels": [[0, 4, "PER"]]}), encoding="utf-8")
    sentences = read_sentences(str(tmp_path), VALIDATION)
    assert sentences.tags == [["B-PER", "O", "O"]]
    assert list(sentences.notes) == ["1 entities begin or end within a word, and are taken to its end"]
    (tmp_path / "test.json").write_text('{"text": "the film"}\n', encoding="utf-8")
    test = read_sentences(str(tmp_path), TEST)
    assert (test.words, test.tags) == ([["the", "film"]], None)


def test_texts_that_are_not_marked_or_whose_marks_are_rejected_are_left_out(tmp_path: Path) -> None:
    marked = [{"start": 0, "end": 3, "label": "ORG"}]
    rows: list[dict[str, object]] = [{"text": "the film"}]
    rows += [{"text": f"EU {answer}", "spans": marked, "answer": answer} for answer in ("reject", "accept", "ignore")]
    rows += [{"text": "no film", "spans": [], "answer": "accept"}]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    sentences = read_sentences(str(tmp_path), TRAIN)
    assert (sentences.words, sentences.tags) == ([["EU", "accept"], ["no", "film"]], [["B-ORG", "O"], ["O", "O"]])
    assert list(sentences.notes) == ["3 texts that nobody has marked, or accepted, are left out"]


@pytest.mark.parametrize("repeats", [False, True])
def test_kaggle_s_table_of_entities(repeats: bool, tmp_path: Path) -> None:
    """Of the data set "Annotated Corpus for Named Entity Recognition", whose first column is filled on first words."""
    first, second = ("Sentence: 1", "Sentence: 2") if repeats else ("", "")
    lines = ["Sentence #,Word,POS,Tag", "Sentence: 1,New,NNP,B-geo", f"{first},York,NNP,I-geo", f'{first},"""",``,O']
    (tmp_path / "train.csv").write_text("\n".join([*lines, "Sentence: 2,in,IN,O", f'{second},"1,5",CD,O\n']))
    sentences = read_sentences(str(tmp_path), TRAIN)
    assert sentences.words == [["New", "York", '"'], ["in", "1,5"]]
    assert sentences.tags == [["B-geo", "I-geo", "O"], ["O", "O"]]
    (tmp_path / "train.csv").write_text("Sentence #,Word,Tag\n1,The,DET\n,cat,\n")
    with pytest.raises(UserError, match="line 3: Tag is empty; correct it there"):
        read_sentences(str(tmp_path), TRAIN)
    (tmp_path / "valid.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match="has the columns a, b; it needs one of sentence #"):
        read_sentences(str(tmp_path), VALIDATION)


@pytest.mark.parametrize("fields", [("tokens", "ner_tags"), ("words", "labels")])
def test_hugging_face_s_json_lines(tmp_path: Path, fields: tuple[str, str]) -> None:
    rows = [(["New York", "#"], ["B-LOC", "O"]), ([], [])]
    lines = [json.dumps(dict(zip(fields, row))) + "\n" for row in rows]
    (tmp_path / "validation.jsonl").write_text("".join(lines), encoding="utf-8")
    sentences = read_sentences(str(tmp_path), VALIDATION)
    assert (sentences.words, sentences.tags) == ([["New York", "#"], []], [["B-LOC", "O"], []])
    written = [json.loads(line) for line in prediction_lines(sentences, sentences.tags)]
    assert [(row["tokens"], row["ner_tags"]) for row in written] == rows
    (tmp_path / "test.json").write_text('{"tokens": ["a"]}\n', encoding="utf-8")
    assert read_sentences(str(tmp_path), TEST).tags is None


def test_columns_of_conll(tmp_path: Path) -> None:
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
    assert sentences.notes == ["1 entities overlap an earlier one and are left out"] and sentences.form == CLUENER
    lines = list(prediction_lines(sentences, sentences.tags))
    assert json.loads(lines[0]) == {"id": 0, "label": {"name": {"叶老": [[0, 1]]}, "address": {"北京": [[3, 4]]}}}
    (tmp_path / "test.json").write_text('{"id": 7, "text": "北京"}\n', encoding="utf-8")
    test = read_sentences(str(tmp_path), TEST)
    assert test.tags is None and test.ids == [7] and test.words == [["北", "京"]]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train.txt", "EU B-ORG\nrejects\n", "line 2: has 1 columns, line 1 of the same sentence 2; correct one"),
        ("train.txt", "EU\n", "train.txt: line 1: does not end with a tag"),
        ("train.txt", "EU organisation\n", "train.txt: all words have the tag 'organisation'"),
        ("train.txt", "EU _\nacts SpaceAfter=No\n", "train.txt: words have the tag _, no value"),
        ("train.txt", "EU B-ORG\nacts 0\n", "train.txt: line 2: '0' is not a tag such as O"),
        ("train.txt", "In (DATE*\n2001 *)\nhe *\n", "is in the brackets of CoNLL-2012"),
        ("train.txt", "\n\n", "contains no sentences"),
        ("train.json", '{"text": "x", "label": {"a": {"x": [[Infinity, 0]]}}}\n', "train.json: line 1: is not"),
        ("train.json", "[" * 100_000, "train.json: line 1: is not JSON"),
        ("train.json", '{"tokens": ["a"], "ner_tags": [3]}\n', "write the names of the tags"),
        ("train.json", '{"tokens": ["a"], "ner_tags": []}\n', "line 1: has 1 tokens and 0 ner_tags"),
        ("train.json", '{"tokens": ["a"], "ner_tags": ["O"]}\n{"tokens": null}\n', "line 2: tokens is None"),
        ("train.json", '{"text": "EU acts", "label": {"o": {"acts": [[0, 1]]}}}\n', "are 'EU', not 'acts'"),
        ("train.json", '{"text": "EU", "labels": [[0, 3, "ORG"]]}', "'ORG' from 0 to 3 is 'EU', in a text of 2"),
        ("train.json", '{"text": "EU", "labels": [[1, 1, "ORG"]]}', "count characters from 0, the end not included"),
        ("train.json", '{"text": "EU", "labels": [[0, 1, 5]]}', 'line 1: is not {"text": "EU acts", "labels"'),
        ("train.json", '{"text": "x"}\n', "contains no tags"),
        ("train.json", '{"text": "x", "labels": []}\n', "all words have the tag 'O'; give the words their tags"),
        ("other.txt", "EU B-ORG\n", "has no train.txt or eng.train or train.json"),
    ],
)
def test_broken_files_are_refused_with_the_line(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        read_sentences(str(tmp_path), TRAIN)
    assert message in str(caught.value) and ";" in str(caught.value)


@pytest.mark.parametrize("columns", [{"word_column": 1}, {"tag_column": 3}])
def test_numbers_of_columns_are_of_column_files_alone(tmp_path: Path, columns: dict[str, int]) -> None:
    (tmp_path / "train.csv").write_text("Sentence #,Word,POS,Tag\n1,EU,PROPN,B-ORG\n1,acts,VERB,O\n", encoding="utf-8")
    assert read_sentences(str(tmp_path), TRAIN).tags == [["B-ORG", "O"]]
    with pytest.raises(UserError, match=r"train\.csv: token_data\.tag_column and word_column count .*; leave them out"):
        read_sentences(str(tmp_path), TRAIN, **columns)


def test_lines_around_a_document_are_no_words(tmp_path: Path) -> None:
    """Of CoNLL-2012 (https://conll.cemantix.org/2012/data.html)."""
    lines = ["#begin document (bc/a); part 000", "In O", "Bonn B-GPE", "", "#end document", "#begin document (b);"]
    (tmp_path / "train.txt").write_text("\n".join([*lines, "He O", "#end document", ""]), encoding="utf-8")
    sentences = read_sentences(str(tmp_path), TRAIN)
    assert sentences.words == [["In", "Bonn"], ["He"]] and sentences.tags == [["O", "B-GPE"], ["O"]]


TEXTS = {  # words as they stand in the text
    "Toyota (豊田) opened.": "Toyota|(|豊|田|)|opened|.",
    "U.S.A. and O'Neill, New York 纽约": "U|.|S|.|A|.|and|O|'|Neill|,|New|York|纽|约",
    "हिन्दी में लिखा": "हिन्दी|में|लिखा",
    "ประเทศไทย ที่นี่": "ประเทศไทย|ที่นี่",
    "தமிழ்நாடு மொழி": "தமிழ்நாடு|மொழி",
    "שָׁלוֹם עוֹלָם": "שָׁלוֹם|עוֹלָם",
    "cafe\u0301s cafe\u0301": "cafe\u0301s|cafe\u0301",
    " a\tb\u00a0c\n": "a|b|c",
}


@pytest.mark.parametrize("lower_case", [True, False])
@pytest.mark.parametrize("text", TEXTS)
def test_words_of_a_text_are_those_of_bert(text: str, lower_case: bool, tmp_path: Path) -> None:
    """Compared with Hugging Face's slow tokenizer, which is Google's code."""
    tokenizer = load_tokenizer(str(write_pieces(tmp_path / "vocab.txt", PIECES)), lower_case)
    (spans,) = word_spans(tokenizer, [text])
    words = [text[begin:end] for begin, end in spans]
    assert words == TEXTS[text].split("|")
    composed = [unicodedata.normalize("NFC", word) for word in words]
    assert composed == BasicTokenizer(do_lower_case=False, strip_accents=False).tokenize(text)
    assert all(a <= b for (_, a), (b, _) in pairwise(spans))


def test_the_first_piece_of_a_word_has_its_tag(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(str(write_pieces(tmp_path / "vocab.txt", PIECES)), True)
    sentences = [["anna", "vandam", "saw", "oslo"], ["\u200b", "rome"]]
    encoded = encode_words(tokenizer, sentences, 7)
    pieces = [[PIECES[number] for number in row] for row in encoded.arrays["input_ids"]]
    assert pieces[0] == ["[CLS]", "anna", "van", "##dam", "saw", "oslo", "[SEP]"]
    assert pieces[1] == ["[CLS]", "[UNK]", "rome", "[SEP]", "[PAD]", "[PAD]", "[PAD]"]
    assert (encoded.truncated, encoded.truncated_words, encoded.lengths.tolist()) == (0, 0, [7, 4])
    names, tags = ["O", "B-PER", "I-PER", "B-LOC"], [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-LOC"]]
    labels = encoded.labels(tags, names)
    assert labels.tolist() == [[0, 2, 3, 0, 1, 4, 0], [0, 1, 4, 0, 0, 0, 0]]
    assert encoded.tags(np.maximum(labels - 1, 0), names, sentences) == tags
    short = encode_words(tokenizer, sentences, 5)
    assert (short.truncated, short.truncated_words, short.lengths.tolist()) == (1, 2, [5, 4])
    assert short.tags(np.full((2, 5), 3), names, sentences)[0] == ["B-LOC", "B-LOC", "O", "O"]
    assert short.tags(np.full((2, 5), 3), ["A", "O", "X", "Y"], sentences)[0] == ["Y", "Y", "_", "_"]
