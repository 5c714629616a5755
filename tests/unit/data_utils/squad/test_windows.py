"""Windows and labels equal those of a slow version of the published algorithm, and Hugging Face's features."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from data_utils.records.validation import find_problem
from data_utils.squad.examples import SquadSet, answer_position, read_squad
from data_utils.squad.windows import Geometry, WindowReader, Windows, make_windows, squad_features
from data_utils.tokenizer import Vocabulary, load_tokenizer, read_vocabulary
from tests.support.hf_squad import hugging_face_features
from tests.support.real_data import real_data
from tests.support.squad_files import parsed, random_document, single, write_vocabulary

SIZES = [(32, 8, 5), (24, 10, 100), (16, 12, 1), (64, 16, 16), (200, 64, 9)]
GEOMETRIES = [Geometry(*sizes) for sizes in SIZES]


def rows(windows: Windows, geometry: Geometry, vocabulary: Vocabulary, labels: bool) -> dict[str, np.ndarray]:
    spec = squad_features(geometry.max_seq_length, len(vocabulary.pieces), labels)
    return WindowReader(spec, windows, vocabulary).read(np.arange(windows.count))


def reference(squad: SquadSet, tokenizer: Tokenizer, geometry: Geometry, labels: bool) -> Iterator[dict[str, Any]]:
    """Make windows one by one like Devlin et al.'s program, with labels by shared characters."""
    cls, sep, pad = (tokenizer.token_to_id(token) for token in ("[CLS]", "[SEP]", "[PAD]"))
    for number, question in enumerate(squad.questions):
        asked = tokenizer.encode(question.text, add_special_tokens=False).ids[: geometry.max_query_length]
        context = tokenizer.encode(squad.context(question), add_special_tokens=False)
        answer = question.answers[0]
        position = answer_position(squad.context(question), answer)
        characters = set() if position is None else set(range(position, position + len(answer.text)))
        touching = [i for i, (a, b) in enumerate(context.offsets) if characters & set(range(a, b))]
        if labels and not touching:
            continue
        begin, most = 0, geometry.max_seq_length - len(asked) - 3
        while True:
            part = context.ids[begin : begin + most]
            ids = [cls, *asked, sep, *part, sep]
            fill = geometry.max_seq_length - len(ids)
            inside = labels and touching[0] >= begin and touching[-1] < begin + len(part)
            shift = len(asked) + 2 - begin
            yield {
                "question": number,
                "input_ids": ids + [pad] * fill,
                "input_mask": [1] * len(ids) + [0] * fill,
                "segment_ids": [0] * (len(asked) + 2) + [1] * (len(part) + 1) + [0] * fill,
                "start_positions": touching[0] + shift if inside else 0,
                "end_positions": touching[-1] + shift if inside else 0,
            }
            if begin + len(part) == len(context.ids):
                break
            begin += min(len(part), geometry.doc_stride)


@pytest.mark.parametrize("labels", [True, False])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_windows_are_those_of_the_published_algorithm(
    geometry: Geometry, labels: bool, tokenizer: Tokenizer, vocabulary: Vocabulary
) -> None:
    for seed in range(12):
        squad = parsed(random_document(seed))
        windows = make_windows(squad, tokenizer, geometry, labels)
        batch = rows(windows, geometry, vocabulary, labels)
        expected = list(reference(squad, tokenizer, geometry, labels))
        assert windows.question.tolist() == [window["question"] for window in expected]
        asked = [len(tokenizer.encode(question.text, add_special_tokens=False)) for question in squad.questions]
        assert windows.questions_cut == sum(count > geometry.max_query_length for count in asked)
        for name, values in batch.items():
            assert values.dtype == np.int32
            wanted = np.array([window[name] for window in expected]).reshape(values.shape)
            np.testing.assert_array_equal(values, wanted, err_msg=name)


def test_samples_are_read_in_any_order_and_fit_their_specification(
    tokenizer: Tokenizer, vocabulary: Vocabulary
) -> None:
    geometry = GEOMETRIES[0]
    windows = make_windows(parsed(random_document(3)), tokenizer, geometry, labels=True)
    whole = rows(windows, geometry, vocabulary, labels=True)
    spec = squad_features(geometry.max_seq_length, len(vocabulary.pieces))
    reader = WindowReader(spec, windows, vocabulary)
    assert reader.count == windows.count
    assert find_problem(spec, whole) is None
    wanted = np.array([5, 0, 5, windows.count - 1])
    for name, values in reader.read(wanted).items():
        np.testing.assert_array_equal(values, whole[name][wanted])


def labelled_text(squad: SquadSet, windows: Windows, window: int) -> str:
    question = squad.questions[windows.question[window]]
    shift = windows.begin[window] - windows.first_column[window]
    offsets = windows.context(windows.question[window]).offsets
    begin, end = offsets[windows.start[window] + shift, 0], offsets[windows.end[window] + shift, 1]
    return squad.context(question)[begin:end]


@pytest.mark.parametrize(
    ("context", "answer", "labelled"),
    [
        ("Was it (1849)? Yes.", "1849", "1849"),
        ("The 1870s.", "1870", "1870s"),  # no piece ends within the word, so the answer is the whole word
        ("the king's bridge", "king", "king"),
        ("x CAFÉ y", "CAFÉ", "CAFÉ"),
        ("near \u201cthe new\u201d king", "the new", "the new"),
        ("old\u00a0\tking", "king", "king"),
        ("who built it? He built it.", "He built it.", "He built it."),
    ],
)
def test_labels_cover_the_answer(context: str, answer: str, labelled: str, tmp_path: Path) -> None:
    path = write_vocabulary(tmp_path).path
    path.write_text(path.read_text(encoding="utf-8") + "1870s\n1849\n", encoding="utf-8")
    squad = single(context, (answer, context.index(answer)))
    windows = make_windows(squad, load_tokenizer(str(path), True), Geometry(40, 8, 8), labels=True)
    (labels,) = np.unique([labelled_text(squad, windows, w) for w in np.flatnonzero(windows.start)])
    assert labels == labelled


def test_questions_without_a_position_of_their_answer_have_no_window(tokenizer: Tokenizer) -> None:
    for squad in (single("the old king", ("queen", 0)), single("the old king")):
        assert make_windows(squad, tokenizer, GEOMETRIES[0], labels=True).count == 0
        assert make_windows(squad, tokenizer, GEOMETRIES[0], labels=False).count == 1


def test_a_context_without_tokens_has_one_window(tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
    paragraphs = [
        {"context": "\u200b\ufffd", "qas": [{"id": "1", "question": "", "answers": []}]},
        {"context": "king", "qas": [{"id": "2", "question": "who", "answers": []}]},
    ]
    squad = parsed({"data": [{"paragraphs": paragraphs}]})
    windows = make_windows(squad, tokenizer, GEOMETRIES[0], labels=False)
    ids = rows(windows, GEOMETRIES[0], vocabulary, False)["input_ids"]
    pieces = [[vocabulary.pieces[i] for i in row if i] for row in ids]
    assert pieces == [["[CLS]", "[SEP]", "[SEP]"], ["[CLS]", "who", "[SEP]", "king", "[SEP]"]]


def compare_with_hugging_face(path: Path, vocabulary: Vocabulary, geometry: Geometry, same_labels: float) -> None:
    squad = read_squad(path)
    windows = make_windows(squad, load_tokenizer(str(vocabulary.path), True), geometry, labels=True)
    theirs = hugging_face_features(path, vocabulary.path, geometry, training=True)
    ours = rows(windows, geometry, vocabulary, labels=True)
    names = {"input_ids": "input_ids", "input_mask": "attention_mask", "segment_ids": "token_type_ids"}
    for name, their_name in names.items():
        np.testing.assert_array_equal(ours[name], [getattr(feature, their_name) for feature in theirs])
    same = np.array([f.start_position for f in theirs]) == windows.start
    same &= np.array([f.end_position for f in theirs]) == windows.end
    assert same.mean() >= same_labels
    # If they differ, the answer ends within a word, and Hugging Face's label has the whole word: ours is shorter.
    for window in np.flatnonzero(~same):
        answer = squad.questions[windows.question[window]].answers[0].text
        assert answer in labelled_text(squad, windows, window)
        longer = theirs[window].end_position - theirs[window].start_position
        assert windows.end[window] - windows.start[window] <= longer


def test_features_are_hugging_faces(tmp_path: Path, vocabulary: Vocabulary) -> None:
    path = tmp_path / "train.json"
    path.write_text(json.dumps(random_document(7, articles=4)), encoding="utf-8")
    compare_with_hugging_face(path, vocabulary, Geometry(40, 8, 9), same_labels=0.9)


def test_real_features_are_hugging_faces(tmp_path: Path) -> None:
    document = json.loads(real_data("squad", "train-v1.1-prefix.json").read_text(encoding="utf-8"))
    chance = random.Random(2)
    paragraphs = [paragraph for article in document["data"] for paragraph in article["paragraphs"]]
    path = tmp_path / "train.json"
    content = {"data": [{"title": "some", "paragraphs": chance.sample(paragraphs, 40)}], "version": "1.1"}
    path.write_text(json.dumps(content), encoding="utf-8")
    vocabulary = read_vocabulary(real_data("vocab", "vocab-bert-base-uncased.txt"))
    compare_with_hugging_face(path, vocabulary, Geometry(128, 24, 64), same_labels=0.98)


def test_chinese_windows_point_at_the_answers(tmp_path: Path) -> None:
    squad = read_squad(real_data("squad", "xquad.zh.json"))
    vocabulary = real_data("vocab", "vocab-bert-base-chinese.txt")
    windows = make_windows(squad, load_tokenizer(str(vocabulary), True), Geometry(384, 64, 128), labels=True)
    inside = np.flatnonzero(windows.start)
    assert len(set(windows.question[inside].tolist())) == len(squad.questions)
    texts = [(labelled_text(squad, windows, w), squad.questions[windows.question[w]].answers[0].text) for w in inside]
    assert all(answer in labelled for labelled, answer in texts)
    assert np.mean([labelled == answer for labelled, answer in texts]) > 0.95
