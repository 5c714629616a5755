"""Exact match and F1 equal those of Hugging Face's functions, and hand-made values."""

from __future__ import annotations

import json
import logging
import random
from pathlib import Path
from types import SimpleNamespace

import pytest
from transformers.data.metrics import squad_metrics
from transformers.data.metrics.squad_metrics import compute_exact, compute_f1, normalize_answer

from data_utils.squad.__main__ import main
from data_utils.squad.metric import best_scores, normalized_words, score, score_with_no_answers
from tests.support.squad_files import parsed, random_document


def reference_scores(prediction: str, answer: str) -> tuple[int, float]:
    """Return exact match and F1 of the published script, where texts without words have an F1 of 0."""
    if not (normalize_answer(prediction) and normalize_answer(answer)):
        return compute_exact(answer, prediction), 0.0  # Hugging Face's F1 is 1 if neither has words
    return compute_exact(answer, prediction), compute_f1(answer, prediction)


def reference_best(prediction: str, answers: list[str]) -> tuple[int, float]:
    exact_match, f1 = zip(*(reference_scores(prediction, answer) for answer in answers))
    return max(exact_match), max(f1)


def reference_score(answers: dict[str, list[str]], predictions: dict[str, str]) -> dict[str, float]:
    """Return the means in percent over all questions, where one without a prediction counts 0."""
    exact_match = f1 = 0.0
    for identity, prediction in predictions.items():
        best = reference_best(prediction, answers[identity])
        exact_match, f1 = exact_match + best[0], f1 + best[1]
    return {"exact_match": 100.0 * exact_match / len(answers), "f1": 100.0 * f1 / len(answers)}


HAND_MADE = [
    ("Denver Broncos", ["Denver Broncos"], 1, 1),
    ("the Denver Broncos.", ["Denver Broncos"], 1, 1),
    ("Denver Broncos team", ["Denver Broncos"], 0, 0.8),
    ("U.S.", ["US"], 1, 1),
    ("co-operation", ["cooperation"], 1, 1),
    ("co operation", ["co-operation"], 0, 0),
    ("$5,000", ["5000"], 1, 1),
    ("an apple a day", ["apple day"], 1, 1),
    ("A", ["B"], 0, 0),
    ("a", ["the"], 1, 0),  # both are empty: an exact match without a common word
    ("", ["the"], 1, 0),
    ("", [""], 1, 0),
    ("", ["Oslo"], 0, 0),
    ("theatre", ["atre"], 0, 0),
    ("the the theatre", ["theatre"], 1, 1),
    ("a–b", ["–b"], 1, 1),  # an en dash ends a word, and is not ASCII punctuation
    ("“Oslo”", ["Oslo"], 0, 0),
    ('"Oslo"', ["Oslo"], 1, 1),
    ("caf\u00e9", ["cafe\u0301"], 0, 0),
    ("the\u0301", ["\u0301"], 1, 1),  # a combining accent is not a letter, so "the" is a separate word
    ("ÉCOLE", ["école"], 1, 1),
    ("STRASSE", ["straße"], 0, 0),
    ("İstanbul", ["i\u0307stanbul"], 1, 1),
    ("Oslo\u00a0city", ["oslo city"], 1, 1),
    ("Oslo\u200bcity", ["oslo city"], 0, 0),
    ("北京。", ["北京"], 0, 0),
    ("北京.", ["北京"], 1, 1),
    ("a_b", ["ab"], 1, 1),
    ("_the_", ["the"], 1, 0),
    ("y x", ["x y"], 0, 1),
    ("one two three", ["three", "one two", "one two three four"], 0, 2 * 1 * 0.75 / 1.75),
    ("one", ["two", "one", "three"], 1, 1),
    ("1st", ["first"], 0, 0),
    ("٣", ["3"], 0, 0),
    ("C++", ["C"], 1, 1),
    ("\n", [" "], 1, 0),
    ("Oslo\x0bcity", ["oslo city"], 1, 1),
    ("Oslo\x1ccity", ["oslo city"], 1, 1),
    ("a\x85b", ["b"], 1, 1),
]


@pytest.mark.parametrize(("prediction", "answers", "exact_match", "f1"), HAND_MADE)
def test_hand_made_cases(prediction: str, answers: list[str], exact_match: float, f1: float) -> None:
    assert best_scores(prediction, answers) == (exact_match, pytest.approx(f1, abs=1e-15))
    assert best_scores(prediction, answers) == reference_best(prediction, answers)


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
def test_generated_cases(seed: int) -> None:
    answers, predictions = generated(400, seed)
    scores, per_question = score(answers, predictions)
    assert scores == reference_score(answers, predictions)
    for identity, gold in answers.items():
        if identity in predictions:
            assert per_question[identity] == reference_best(predictions[identity], gold)
            assert all(normalized_words(text) == normalize_answer(text).split() for text in gold)
        else:
            assert per_question[identity] == (0, 0)


def test_a_missing_prediction_counts_zero_and_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        scores, _ = score({"x": ["Oslo"], "y": ["Oslo"]}, {"y": "Oslo"})
    assert scores == {"exact_match": 50.0, "f1": 50.0}
    assert "1 questions have no prediction" in caplog.text
    assert "x" in caplog.text


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, predictions = tmp_path / "data.json", tmp_path / "predictions.json"
    document = random_document(1)
    data.write_text(json.dumps(document), encoding="utf-8")
    answers = {question.id: [answer.text for answer in question.answers] for question in parsed(document).questions}
    predicted = {identity: texts[0].split()[0] for identity, texts in answers.items()}
    predictions.write_text(json.dumps(predicted), encoding="utf-8")
    assert main([str(data), str(predictions)]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores == reference_score(answers, predicted) and 0 < scores["exact_match"] < scores["f1"] < 100
    for content, message in (("[]", "no predictions"), ("{", "JSON"), ('{"x": 3}', "no predictions")):
        predictions.write_text(content, encoding="utf-8")
        assert main([str(data), str(predictions)]) == 2
        assert message in capsys.readouterr().err


@pytest.mark.parametrize("seed", range(20))
def test_scores_of_version_2(seed: int) -> None:
    chance = random.Random(seed)

    def text() -> str:
        return " ".join(chance.choice(["the", "Oslo", "city", "of", "U.S."]) for _ in range(chance.randint(1, 3)))

    gold = {
        str(n): [] if n % 3 == 0 else ["Oslo city", *(text() for _ in range(chance.randint(0, 2)))] for n in range(30)
    }
    predictions = {question: f"Oslo {text()}" for question in gold}
    odds = {question: chance.uniform(-5, 5) for question in gold}
    result, each = score_with_no_answers(gold, predictions, odds, 0.5)
    examples = [SimpleNamespace(qas_id=q, answers=[{"text": a} for a in answers]) for q, answers in gold.items()]
    has_answer = {question: bool(answers) for question, answers in gold.items()}
    for name, raw in zip(("exact_match", "f1"), squad_metrics.get_raw_scores(examples, predictions)):
        official = squad_metrics.apply_no_ans_threshold(raw, odds, has_answer, 0.5)
        assert {question: getattr(scores, name) for question, scores in each.items()} == pytest.approx(official)
        for kind, kept in (("", (True, False)), ("HasAns_", (True,)), ("NoAns_", (False,))):
            part = [official[question] for question in gold if has_answer[question] in kept]
            assert result[kind + name] == pytest.approx(100 * sum(part) / len(part))
        best = squad_metrics.find_best_thresh(predictions, raw, odds, has_answer)
        assert (result[f"best_{name}"], result[f"best_{name}_threshold"]) == pytest.approx(best)


def test_impossible_questions_alone_are_scored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As SQuAD's script does: 1 for a prediction without words, else 0; hand-made."""
    questions = [{"id": str(n), "question": "?", "answers": [], "is_impossible": True} for n in range(4)]
    document = {"data": [{"paragraphs": [{"context": "Oslo is", "qas": questions}]}]}
    assert parsed(document).has_scores(True) and not parsed(document).has_scores(False)
    data, predictions = tmp_path / "dev.json", tmp_path / "predictions.json"
    data.write_text(json.dumps(document))
    predictions.write_text(json.dumps({"0": "", "1": "Oslo", "2": "the", "3": "is"}))
    assert main([str(data), str(predictions)]) == 0
    wanted = {"exact_match": 50, "f1": 50, "NoAns_exact_match": 50, "NoAns_f1": 50}
    assert json.loads(capsys.readouterr().out) == pytest.approx(wanted)
    examples = [SimpleNamespace(qas_id=str(n), answers=[]) for n in range(4)]
    found, odds = json.loads(predictions.read_text()), {str(n): float(n) for n in range(4)}
    result, _ = score_with_no_answers({str(n): [] for n in range(4)}, found, odds, 1.5)
    theirs = squad_metrics.squad_evaluate(examples, found, odds, 1.5)
    names = {"exact_match": "exact", "NoAns_exact_match": "NoAns_exact", "f1": "f1", "NoAns_f1": "NoAns_f1"}
    names.update(best_exact_match="best_exact", best_f1="best_f1", best_f1_threshold="best_f1_thresh")
    assert {name: result[name] for name in names} == pytest.approx({n: theirs[other] for n, other in names.items()})


def test_the_command_scores_version_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    questions = [
        {"id": "1", "question": "?", "answers": [{"text": "Oslo", "answer_start": 0}], "is_impossible": False},
        {"id": "2", "question": "?", "answers": [], "is_impossible": True},
        {"id": "3", "question": "?", "answers": [], "is_impossible": True},
    ]
    document = {"data": [{"paragraphs": [{"context": "Oslo is", "qas": questions}]}]}
    data, predictions = tmp_path / "dev.json", tmp_path / "predictions.json"
    data.write_text(json.dumps(document))
    predictions.write_text(json.dumps({"1": "oslo", "2": "", "3": "Oslo"}))
    assert main([str(data), str(predictions)]) == 0
    scores = json.loads(capsys.readouterr().out)
    wanted = {"exact_match": 200 / 3, "f1": 200 / 3, "HasAns_f1": 100, "HasAns_exact_match": 100}
    assert scores == pytest.approx({**wanted, "NoAns_f1": 50, "NoAns_exact_match": 50})
    predictions.write_text("{}")
    assert main([str(data), str(predictions)]) == 2
