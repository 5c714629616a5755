"""The best answers equal those of a search through all spans, and Hugging Face's."""

from __future__ import annotations

import json
import math
import operator
import random
import re
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tokenizers import Tokenizer

from data_utils.squad.answers import Candidate, best_answers, no_answer_odds
from data_utils.squad.examples import SquadSet, read_squad
from data_utils.squad.windows import Geometry, Windows, make_windows
from data_utils.tokenizer import SPECIAL_TOKENS, Vocabulary, make_tokenizer
from tests.support.hf_squad import hugging_face_features
from tests.support.squad_files import WORDS, parsed, random_document, single
from utilities.errors import UserError

GEOMETRY = Geometry(32, 8, 6)


def random_logits(windows: Windows, geometry: Geometry, seed: int) -> tuple[np.ndarray, np.ndarray]:
    chance = np.random.default_rng(seed)
    shape = (windows.count, geometry.max_seq_length)
    return tuple(chance.normal(size=shape).astype(np.float32) for _ in range(2))


def owner(parts: list[tuple[int, int]], token: int) -> int:
    """Return Devlin et al.'s "maximum context": the part in which a token has the most context on its shorter side."""
    scores = []
    for begin, length in parts:
        left, right = token - begin, begin + length - 1 - token
        scores.append(min(left, right) + 0.01 * length if left >= 0 and right >= 0 else -math.inf)
    return scores.index(max(scores))


def reference(
    squad: SquadSet, windows: Windows, start: np.ndarray, end: np.ndarray, number: int, n_best: int, longest: int
) -> list[Candidate]:
    rows = np.flatnonzero(windows.question == number)
    parts = [(int(windows.begin[w]), int(windows.length[w])) for w in rows]
    context = squad.context(squad.questions[number])
    offsets = windows.context(number).offsets
    spans = []
    for part, w in enumerate(rows):
        begin, length = parts[part]
        shift = windows.first_column[w] - begin
        for first in range(begin, begin + length):
            if owner(parts, first) != part:
                continue
            for last in range(first, min(begin + length, first + longest)):
                a, b = float(start[w, first + shift]), float(end[w, last + shift])
                spans.append((-(a + b), first, last, a, b))
    best: list[Candidate] = []
    for _, first, last, a, b in sorted(spans):
        begin, end_ = int(offsets[first, 0]), int(offsets[last, 1])
        text = context[begin:end_]
        if len(best) < n_best and text not in [each.text for each in best]:
            best.append(Candidate(text, 0.0, a, b, begin, end_))
    weights = [math.exp(each.start_logit + each.end_logit) for each in best]
    return [each._replace(probability=weight / sum(weights)) for each, weight in zip(best, weights)]


@pytest.mark.parametrize(("n_best", "longest"), [(1, 30), (5, 4), (20, 3), (7, 1)])
@pytest.mark.parametrize("geometry", [GEOMETRY, Geometry(24, 8, 1), Geometry(128, 8, 128)])
def test_best_answers_of_all_spans(n_best: int, longest: int, geometry: Geometry, tokenizer: Tokenizer) -> None:
    for seed in range(3):
        squad = parsed(random_document(seed, articles=2))
        windows = make_windows(squad, tokenizer, geometry, labels=False)
        start, end = random_logits(windows, geometry, seed)
        answers = best_answers(squad, windows, start, end, n_best, longest)
        assert list(answers) == [question.id for question in squad.questions]
        for number, question in enumerate(squad.questions):
            ours, expected = answers[question.id], reference(squad, windows, start, end, number, n_best, longest)
            assert [each[:1] + each[2:] for each in ours] == [each[:1] + each[2:] for each in expected]
            probabilities = [each.probability for each in expected]
            np.testing.assert_allclose([each.probability for each in ours], probabilities, rtol=1e-9)


def test_a_long_context_takes_no_more_memory_than_its_windows(tokenizer: Tokenizer) -> None:
    """Scores of spans are needed for the tokens of each window, not for all tokens in each window."""
    squad = single(" ".join(random.Random(0).choices(WORDS[:15], k=20_000)))
    geometry = Geometry(384, 64, 128)
    windows = make_windows(squad, tokenizer, geometry, labels=False)
    logits = random_logits(windows, geometry, 0)
    assert windows.count > 150
    tracemalloc.start()
    try:
        (answers,) = best_answers(squad, windows, *logits, 20, 30).values()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(answers) == 20 and peak < 4 * windows.count * 384 * 30 * 4


def test_accents_of_the_last_letter_are_kept(tokenizer: Tokenizer) -> None:
    context = "the cafe\u0301\u0323 is old"
    squad = single(context)
    windows = make_windows(squad, tokenizer, GEOMETRY, labels=False)
    texts = [each.text for each in best_answers(squad, windows, *random_logits(windows, GEOMETRY, 1), 99, 9)["q"]]
    assert "the cafe\u0301\u0323" in texts
    assert not any(text.endswith(("e", "e\u0301")) and "is" not in text and text != "the" for text in texts)


@pytest.mark.parametrize("align", [True, False])
def test_answers_are_extended_to_whole_words(align: bool) -> None:
    """Words are runs of letters; each punctuation mark and each Chinese character is one, too."""
    pieces = [*SPECIAL_TOKENS, "the", "un", "##able", "##s", "cross", "##cross", ".", "-", "北", "京"]
    context = "The Unables - cross uncrossable. 北京 Un [SEP] un"
    tokenizer = make_tokenizer(Vocabulary(pieces, Path("vocab.txt"), b""), True, special_tokens=True)
    squad = single(context, question="un")
    windows = make_windows(squad, tokenizer, Geometry(32, 8, 32), labels=False)
    offsets = windows.context(0).offsets.tolist()
    words = [(match.start(), match.end()) for match in re.finditer(r"\[SEP\]|[A-Za-z]+|[^A-Za-z\s]", context)]
    for first, (begin, _) in enumerate(offsets):
        for last in range(first, min(first + 5, len(offsets))):
            start, end = np.zeros((2, 1, 32), np.float32)
            column = int(windows.first_column[0])
            start[0, column + first] = end[0, column + last] = 9.0
            answer = best_answers(squad, windows, start, end, 1, 5, align_to_words=align)["q"][0]
            inside = [word for word in words if word[0] < offsets[last][1] and begin < word[1]]
            expected = (inside[0][0], inside[-1][1]) if align else (begin, offsets[last][1])
            assert (answer.begin, answer.end) == expected and answer.text == context[slice(*expected)]


def test_a_context_without_tokens_has_an_empty_answer(tokenizer: Tokenizer) -> None:
    squad = single("\u200b\ufffd")
    windows = make_windows(squad, tokenizer, GEOMETRY, labels=False)
    result = best_answers(squad, windows, *random_logits(windows, GEOMETRY, 1), 3, 3)["q"]
    assert result == [Candidate("", 1.0, 0.0, 0.0, 0, 0)]


def test_scores_that_are_not_finite_are_refused(tokenizer: Tokenizer) -> None:
    squad = single("the king")
    windows = make_windows(squad, tokenizer, GEOMETRY, labels=False)
    start, end = random_logits(windows, GEOMETRY, 1)
    end[0, 3] = np.nan
    with pytest.raises(UserError, match="not finite"):
        best_answers(squad, windows, start, end, 3, 3)


@pytest.mark.parametrize("threshold", [None, -1.0, 0.5])
def test_answers_are_hugging_faces(
    threshold: float | None, tmp_path: Path, vocabulary: Vocabulary, tokenizer: Tokenizer
) -> None:
    """All spans are allowed; words have one piece, because Hugging Face extends spans to whole words."""
    theirs = pytest.importorskip("transformers.data.metrics.squad_metrics")
    from transformers import BertTokenizer
    from transformers.data.processors.squad import SquadV1Processor

    chance = random.Random(4)
    plain = [word for word in WORDS if word.isalpha()]
    document = random_document(4)
    for article in document["data"]:
        for paragraph in article["paragraphs"]:
            words = [chance.choice((str.lower, str.capitalize))(chance.choice(plain)) for _ in range(40)]
            paragraph["context"] = " ".join(words)
            for entry in paragraph["qas"]:
                entry["answers"] = [{"text": words[0], "answer_start": 0}]
    path = tmp_path / "dev.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    squad = read_squad(path)
    windows = make_windows(squad, tokenizer, GEOMETRY, labels=False)
    start, end = random_logits(windows, GEOMETRY, 3)
    start[:, 0] += 5.0  # otherwise no answer would never be the best
    features = hugging_face_features(path, vocabulary.path, GEOMETRY, training=False)
    results = [
        SimpleNamespace(unique_id=feature.unique_id, start_logits=a.tolist(), end_logits=b.tolist())
        for feature, a, b in zip(features, start, end)
    ]
    examples = SquadV1Processor().get_dev_examples(str(tmp_path), path.name)
    bert = BertTokenizer(str(vocabulary.path), do_lower_case=True)
    nbest, odds = tmp_path / "nbest.json", tmp_path / "odds.json"
    every = 400  # candidates, all
    files = [None, str(nbest), str(odds) if threshold is not None else None]
    predictions = theirs.compute_predictions_logits(
        examples, features, results, every, 6, True, *files, False, threshold is not None, threshold or 0.0, bert
    )
    expected = json.loads(nbest.read_text(encoding="utf-8"))
    ours = best_answers(squad, windows, start, end, every, 6, threshold)
    assert list(expected) == list(ours)
    assert {identity: candidates[0].text for identity, candidates in ours.items()} == predictions
    if threshold is not None:
        differences = json.loads(odds.read_text(encoding="utf-8"))
        assert {identity: no_answer_odds(each) for identity, each in ours.items()} == pytest.approx(differences)
        assert 0 < sum(not text for text in predictions.values()) < len(predictions)
        score = operator.attrgetter("start_logit", "end_logit")
        ours = {identity: sorted(each, key=lambda one: -sum(score(one))) for identity, each in ours.items()}
    for identity, candidates in expected.items():
        assert [(each.text, each.start_logit, each.end_logit) for each in ours[identity]] == [
            (each["text"], each["start_logit"], each["end_logit"]) for each in candidates
        ]
        probabilities = [each["probability"] for each in candidates]
        np.testing.assert_allclose([each.probability for each in ours[identity]], probabilities, rtol=1e-9)
