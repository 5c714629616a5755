"""Tagged sentences: entities and their scores, both file formats, and tags of word pieces."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from data_utils.token_classification import (
    TEST,
    TRAIN,
    VALIDATION,
    encode_words,
    entity_scores,
    find_entities,
    prediction_lines,
    read_sentences,
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
        ("train.txt", "New York B-LOC\nEU B-ORG\n", "train.txt: line 2: has 2 columns, the words before it 3"),
        ("train.json", '{"text": "x", "label": {"a": {"x": [[0.5, 0.5]]}}}\n', "train.json: line 1: is not"),
        ("train.json", '{"text": "x", "label": {"a": {"x": [[Infinity, 0]]}}}\n', "train.json: line 1: is not"),
        ("train.json", '{"text": "x", "label": {"": {"x": [[0, 0]]}}}\n', "train.json: line 1: is not"),
        ("train.json", '{"text": "x\\ud800", "label": {}}\n', "line 1: is not JSON (it has half a character"),
        ("train.txt", "E\0U B-ORG\n", "train.txt: line 1: has a NUL character"),
        ("train.json", "[" * 100_000, "train.json: line 1: is not JSON"),
        ("train.txt", "EU organisation\n", "train.txt: line 1: does not end with a tag"),
        ("train.txt", "\n\n", "contains no sentences"),
        ("train.json", '{"text": "x", "label": {"name": {"y": [[0, 1]]}}}\n', "train.json: line 1: is not"),
        ("train.json", "no json\n", "train.json: line 1: is not"),
        ("train.json", '{"text": "x"}\n', "contains no tags"),
        ("other.txt", "EU B-ORG\n", "has no train.txt or eng.train or train.json"),
    ],
)
def test_broken_files_are_refused_with_the_line(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        read_sentences(str(tmp_path), TRAIN)
    assert message in str(caught.value) and ";" in str(caught.value)


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
