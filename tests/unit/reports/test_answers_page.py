"""The page of answers shows every question marked in its context, escapes text, and loads nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from reports.answers import Answered, render, write_answers
from tests.unit.reports.test_page import Page

CONTEXT = "Oslo is the capital of Norway. " + "It lies on a fjord. " * 30 + "Bergen is the second city."
SCORES = {"exact_match": 25.0, "f1": 41.6667}


def answered(text: str, expected: str, exact_match: float | None, f1: float | None, **changes: Any) -> Answered:
    begin, at = CONTEXT.index(text), CONTEXT.index(expected)
    fields = {
        "article": "Norway",
        "question": f"Question about {text}?",
        "context": CONTEXT,
        "answer": (begin, begin + len(text)),
        "expected": [expected],
        "expected_at": (at, at + len(expected)),
        "confidence": 0.5,
        "exact_match": exact_match,
        "f1": f1,
        **changes,
    }
    return Answered(**fields)


ROWS = [
    answered("Oslo", "Oslo", 1, 1.0, confidence=0.97),
    answered("capital of Norway", "Norway", 0, 0.5),
    answered("fjord", "Bergen", 0, 0.0, confidence=0.1),
    answered("Bergen", "Oslo", 0, 0.0, article="Cities", confidence=0.99),
]


def test_every_question_stands_there_with_its_verdict() -> None:
    page = Page(render("squad", ROWS, SCORES))
    assert len(page.of("article", "question")) == 4
    assert [len(page.of("article", verdict)) for verdict in ("right", "partly", "wrong")] == [1, 1, 2]
    (right,) = page.of("article", "right")
    assert "Question about Oslo?" in right
    assert "97% confidence" in right
    assert "expected" not in right
    (partly,) = page.of("article", "partly")
    assert "expected: Norway" in partly
    assert "F1 0.50" in partly


def test_answers_are_marked_in_their_contexts() -> None:
    page = Page(render("squad", ROWS, SCORES))
    assert page.of("mark", "answer")[1:] == ["Oslo", "capital of Norway", "fjord", "Bergen"]  # the first is the legend
    assert page.of("mark", "expected")[1:] == ["Bergen", "Oslo"]
    wrong = page.of("article", "wrong")[1]
    assert re.search(r"Oslo is the capital [^…]* … [^…]*Bergen is the second city\.", wrong)
    for excerpt in re.findall(r"[^…?]+", re.sub(r"(right|partly right|wrong), F1.*", "", wrong))[1:]:
        assert excerpt.strip() in CONTEXT


def test_a_data_sets_words_stand_as_they_are() -> None:
    """Other pages mask what looks like a secret, but here that would falsify an answer."""
    text = "password: 0123456789abcdef0123456789abcdef01234567"
    row = Answered(text, text, text, (0, len(text)), [text], None, 0.5, 0, 0.5)
    assert render("squad", [row], SCORES).count(text) == 4


def test_how_sure_and_how_often_right() -> None:
    page = Page(render("squad", ROWS, SCORES))
    cells = page.of("td")
    assert cells == [
        *("0% to 20%", "1", "0.0", "0.0"),
        *("40% to 60%", "1", "0.0", "50.0"),
        *("90% to 100%", "2", "50.0", "50.0"),
    ]


def test_texts_cannot_become_markup() -> None:
    evil = "<script>alert('x')</script> & \"<b>"
    row = Answered(evil, evil, evil, (0, 8), [evil], (9, 14), 0.5, 0, 0.0)
    page = render(evil, [row], SCORES)
    assert "<script" not in page
    assert "<b>" not in page
    elements = Page(page)
    assert elements.of("h1") == [evil]
    assert evil in "".join(elements.of("article", "question"))


def test_nothing_is_fetched_from_elsewhere() -> None:
    page = render("squad", ROWS, SCORES)
    assert not re.search(r"(src|href)=|url\(|@import|https?://", page)


def test_questions_without_expected_answers() -> None:
    rows = [row._replace(expected=[], expected_at=None, exact_match=None, f1=None) for row in ROWS]
    page = Page(render("squad", rows, {}))
    assert len(page.of("article", "unmarked")) == 4
    assert page.of("td") == []
    assert "input" not in page.tags


def test_an_empty_answer_and_an_empty_list() -> None:
    assert len(Page(render("squad", [ROWS[0]._replace(answer=(0, 0))], SCORES)).of("article")) == 1
    assert Page(render("squad", [], {})).of("article") == []


def test_the_page_is_replaced_at_once(tmp_path: Path) -> None:
    path = tmp_path / "predictions.html"
    path.write_text("old", encoding="utf-8")
    assert write_answers(path, "squad", ROWS, SCORES) == path
    assert path.read_text(encoding="utf-8") == render("squad", ROWS, SCORES)
    assert [each.name for each in tmp_path.iterdir()] == ["predictions.html"]
