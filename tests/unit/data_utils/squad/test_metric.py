"""Exact match and F1 equal a slow, literal version of their published definition, and Hugging Face's functions."""

from __future__ import annotations

import json
import logging
import random
import string
from pathlib import Path

import pytest

from data_utils.squad.__main__ import main
from data_utils.squad.examples import read_squad
from data_utils.squad.metric import best_scores, normalized_words, score
from tests.support.real_data import real_data

# The definition (Rajpurkar et al. 2016, section 6.1, and the script published with it), read literally: lower-case the
# text; drop ASCII punctuation; put a space in place of each of the words a, an and the; the rest, cut at white space,
# are the words. Exact match: the same words. F1: of the words as multisets. The best of all answers counts; a mean
# in percent over all questions, where one without a prediction counts 0.


def reference_words(text: str) -> list[str]:
    kept = "".join(character for character in text.lower() if character not in string.punctuation)
    without = ""
    run = ""
    for character in kept + "\0":  # sequences of letters and digits, and the text between them
        if character.isalnum() or character == "_":
            run += character
            continue
        without += (" " if run in ("a", "an", "the") else run) + character
        run = ""
    words, word = [], ""
    for character in without[:-1] + " ":
        if character.isspace():
            words += [word] if word else []
            word = ""
        else:
            word += character
    return words


def reference_f1(prediction: str, answer: str) -> float:
    left, predicted = list(reference_words(answer)), reference_words(prediction)
    gold, same = len(left), 0
    for word in predicted:
        if word in left:
            left.remove(word)
            same += 1
    if same == 0:
        return 0
    precision = 1.0 * same / len(predicted)
    recall = 1.0 * same / gold
    return (2 * precision * recall) / (precision + recall)


def reference_score(answers: dict[str, list[str]], predictions: dict[str, str]) -> dict[str, float]:
    exact_match = f1 = total = 0
    for identity, gold in answers.items():
        total += 1
        if identity in predictions:
            prediction = predictions[identity]
            exact_match += max(reference_words(prediction) == reference_words(text) for text in gold)
            f1 += max(reference_f1(prediction, text) for text in gold)
    return {"exact_match": 100.0 * exact_match / total, "f1": 100.0 * f1 / total}


HAND_MADE = [
    ("Denver Broncos", ["Denver Broncos"], 1, 1),
    ("the Denver Broncos.", ["Denver Broncos"], 1, 1),
    ("DENVER  broncos", ["Denver\tBroncos\n"], 1, 1),
    ("Broncos", ["Denver Broncos"], 0, 2 / 3),
    ("Denver Broncos team", ["Denver Broncos"], 0, 0.8),
    ("U.S.", ["US"], 1, 1),
    ("U.S.A", ["usa", "America"], 1, 1),
    ("co-operation", ["cooperation"], 1, 1),
    ("co operation", ["co-operation"], 0, 0),
    ("$5,000", ["5000"], 1, 1),
    ("5,000.50", ["500050"], 1, 1),
    ("1,5", ["15"], 1, 1),
    ("an apple a day", ["apple day"], 1, 1),
    ("A", ["B"], 0, 0),
    ("a", ["the"], 1, 0),  # both are empty: an exact match without a common word
    ("", ["the"], 1, 0),
    ("", [""], 1, 0),
    ("", ["Oslo"], 0, 0),
    ("...", ["!!!"], 1, 0),
    ("Theatre", ["theatre"], 1, 1),
    ("theatre", ["atre"], 0, 0),
    ("the the theatre", ["theatre"], 1, 1),
    ("another", ["an other"], 0, 0),
    ("Vitamin A", ["vitamin"], 1, 1),
    ("a–b", ["–b"], 1, 1),  # an en dash ends a word, and is not ASCII punctuation
    ("“Oslo”", ["Oslo"], 0, 0),
    ('"Oslo"', ["Oslo"], 1, 1),
    ("«Oslo»", ["Oslo"], 0, 0),
    ("caf\u00e9", ["cafe\u0301"], 0, 0),
    ("the\u0301", ["\u0301"], 1, 1),  # a combining accent is not a letter, so "the" is a separate word
    ("thé", ["é"], 0, 0),
    ("ÉCOLE", ["école"], 1, 1),
    ("STRASSE", ["straße"], 0, 0),
    ("İstanbul", ["i\u0307stanbul"], 1, 1),
    ("Oslo\u00a0city", ["oslo city"], 1, 1),
    ("Oslo\u200bcity", ["oslo city"], 0, 0),
    ("北京", ["北京"], 1, 1),
    ("北京。", ["北京"], 0, 0),
    ("北京.", ["北京"], 1, 1),
    ("a_b", ["ab"], 1, 1),
    ("_the_", ["the"], 1, 0),
    ("x x x y", ["x y y"], 0, 2 * (2 / 4) * (2 / 3) / (2 / 4 + 2 / 3)),
    ("y x", ["x y"], 0, 1),
    ("one two three", ["three", "one two", "one two three four"], 0, 2 * 1 * 0.75 / 1.75),
    ("one", ["two", "one", "three"], 1, 1),
    ("1st", ["first"], 0, 0),
    ("٣", ["3"], 0, 0),
    ("½", ["1/2"], 0, 0),
    ("A.", ["a"], 1, 0),
    ("'t is", ["t is"], 1, 1),
    ("rock 'n' roll", ["rock n roll"], 1, 1),
    ("AT&T", ["att"], 1, 1),
    ("C++", ["C"], 1, 1),
    ("#1", ["1"], 1, 1),
    ("\n", [" "], 1, 0),
    ("Oslo\x0bcity", ["oslo city"], 1, 1),
    ("Oslo\x1ccity", ["oslo city"], 1, 1),
    ("a\x85b", ["b"], 1, 1),
]


@pytest.mark.parametrize(("prediction", "answers", "exact_match", "f1"), HAND_MADE)
def test_hand_made_cases(prediction: str, answers: list[str], exact_match: float, f1: float) -> None:
    assert best_scores(prediction, answers) == (exact_match, pytest.approx(f1, abs=1e-15))
    assert best_scores(prediction, answers).f1 == max(reference_f1(prediction, answer) for answer in answers)


FRAGMENTS = [
    *("the", "The", "a", "A", "an", "AN", "other", "theatre", "an-", "Oslo", "oslo", "New York", "1984", "1,984"),
    *("U.S.", "it's", "x", "y", "z", "–", "—", "“", "”", "é", "e\u0301", "ß", "SS", "北", "京", "ا", "_", "\t", "\n"),
    *("\u00a0", "\u200b", " ", "  ", ".", ",", "!", "$", "%", "(", ")", "'", '"', "", "½", "٣", "İ", "ı", "\x1f"),
]


def generated(count: int, seed: int) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Return questions with one to four answers and predictions similar to one of them; some have no prediction."""
    chance = random.Random(seed)

    def text() -> str:
        glue = chance.choice(["", " ", " "])
        return glue.join(chance.choices(FRAGMENTS, k=chance.randrange(7)))

    answers = {str(number): [text() for _ in range(chance.randint(1, 4))] for number in range(count)}
    predictions = {}
    for identity, gold in answers.items():
        like = chance.choice(gold)
        kind = chance.randrange(5)
        near = (like, like.upper(), f"the {like}.", " ".join(reversed(like.split())), text())[kind]
        if chance.random() < 0.95:
            predictions[identity] = near
    return answers, predictions


@pytest.mark.parametrize("seed", range(8))
def test_generated_cases_to_the_last_digit(seed: int) -> None:
    answers, predictions = generated(400, seed)
    scores, marks = score(answers, predictions)
    assert scores == reference_score(answers, predictions)
    for identity, gold in answers.items():
        if identity in predictions:
            assert marks[identity].f1 == max(reference_f1(predictions[identity], text) for text in gold)
        else:
            assert marks[identity] == (0, 0)


def test_hugging_face_agrees_wherever_both_have_words() -> None:
    theirs = pytest.importorskip("transformers.data.metrics.squad_metrics")
    compared = 0
    for seed in range(3):
        answers, predictions = generated(400, seed)
        for identity, prediction in predictions.items():
            for answer in answers[identity]:
                ours = best_scores(prediction, [answer])
                assert normalized_words(answer) == theirs.normalize_answer(answer).split()
                assert ours.exact_match == theirs.compute_exact(answer, prediction)
                if normalized_words(answer) and normalized_words(prediction):
                    assert ours.f1 == theirs.compute_f1(answer, prediction)
                    compared += 1
    assert compared > 500


def test_a_missing_prediction_counts_nothing_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        scores, _ = score({"x": ["Oslo"], "y": ["Oslo"]}, {"y": "Oslo"})
    assert scores == {"exact_match": 50.0, "f1": 50.0}
    assert "1 questions have no prediction" in caplog.text
    assert "x" in caplog.text


def synthetic_predictions(path: Path, seed: int) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Return predictions like those of models: right, longer, shorter, elsewhere, empty, or missing."""
    chance = random.Random(seed)
    squad = read_squad(path)
    answers = {q.id: [answer.text for answer in q.answers] for q in squad.questions}
    predictions = {}
    for question in squad.questions:
        context, answer = squad.context(question), chance.choice(question.answers)
        begin, end = answer.start, answer.start + len(answer.text)
        kind = chance.randrange(8)
        if kind == 1:
            begin, end = max(0, begin - chance.randrange(30)), end + chance.randrange(30)
        elif kind == 2:
            begin, end = begin + chance.randrange(len(answer.text)), end
        elif kind == 3:
            begin = chance.randrange(len(context))
            end = begin + chance.randrange(60)
        text = f"The {answer.text}!" if kind == 4 else "" if kind == 5 else context[begin:end]
        if kind != 6:
            predictions[question.id] = text
    return answers, predictions


def test_the_real_set_to_the_last_digit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = real_data("squad", "dev-v1.1.json")
    answers, predictions = synthetic_predictions(path, seed=1)
    expected = reference_score(answers, predictions)
    assert 30 < expected["exact_match"] < expected["f1"] < 90
    assert score(answers, predictions)[0] == expected
    file = tmp_path / "predictions.json"
    file.write_text(json.dumps(predictions), encoding="utf-8")
    assert main([str(path), str(file)]) == 0
    assert json.loads(capsys.readouterr().out) == expected


@pytest.mark.parametrize(("content", "said"), [("[]", "no predictions"), ("{", "JSON"), ('{"x": 3}', "no predictions")])
def test_predictions_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, said: str) -> None:
    data, predictions = tmp_path / "data.json", tmp_path / "predictions.json"
    entry = {"id": "q", "question": "?", "answers": [{"text": "b", "answer_start": 0}]}
    document = {"data": [{"title": "t", "paragraphs": [{"context": "b", "qas": [entry]}]}]}
    data.write_text(json.dumps(document), encoding="utf-8")
    predictions.write_text(content, encoding="utf-8")
    assert main([str(data), str(predictions)]) == 2
    assert said in capsys.readouterr().err
