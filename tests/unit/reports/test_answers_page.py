"""The page of answers shows every question marked in its context, escapes text, and loads nothing else."""

from __future__ import annotations

import re
from typing import Any

from reports.answers import Answered, answers_page
from tests.support.html_pages import Page, assert_self_contained

CONTEXT = "Oslo is the capital of Norway. " + "It lies on a fjord. " * 30 + "Bergen is the second city."
SCORES = {"exact_match": 25.0, "f1": 41.6667}


def answered(text: str, expected: str, exact_match: float | None, f1: float | None, **changes: Any) -> Answered:
    at, expected_at = ((CONTEXT.index(one), CONTEXT.index(one) + len(one)) for one in (text, expected))
    question = f"Question about {text}?"
    return Answered("Norway", question, CONTEXT, at, [expected], expected_at, 0.5, exact_match, f1)._replace(**changes)


ROWS = [
    answered("Oslo", "Oslo", 1, 1.0, confidence=0.97),
    answered("capital of Norway", "Norway", 0, 0.5),
    answered("fjord", "Bergen", 0, 0.0, confidence=0.1),
    answered("Bergen", "Oslo", 0, 0.0, article="Cities", confidence=0.99),
]


def test_every_question_has_its_verdict_and_its_answer_marked_in_the_context() -> None:
    source = answers_page("squad", ROWS, SCORES)
    assert_self_contained(source)
    assert not re.search(r"src=|https?://", source)
    page = Page(source)
    assert [len(page.elements("article", name)) for name in ("question", "right", "partly", "wrong")] == [4, 1, 1, 2]
    (right,), (partly,), (_, wrong) = (page.elements("article", name) for name in ("right", "partly", "wrong"))
    assert "Question about Oslo?" in right and "97% confidence" in right and "expected" not in right
    assert "expected: Norway" in partly and "F1 0.50" in partly
    assert page.elements("mark", "answer")[1:] == ["Oslo", "capital of Norway", "fjord", "Bergen"]  # after the legend
    assert page.elements("mark", "expected")[1:] == ["Bergen", "Oslo"]
    assert re.search(r"Oslo is the capital [^…]* … [^…]*Bergen is the second city\.", wrong)
    for excerpt in re.findall(r"[^…?]+", re.sub(r"(right|partly right|wrong), F1.*", "", wrong))[1:]:
        assert excerpt.strip() in CONTEXT


def test_texts_of_a_data_set_are_not_masked() -> None:
    """Other pages mask what looks like a secret, but here that would falsify an answer."""
    text = "password: 0123456789abcdef0123456789abcdef01234567"
    row = Answered(text, text, text, (0, len(text)), [text], None, 0.5, 0, 0.5)
    assert answers_page("squad", [row], SCORES).count(text) == 4


def test_scores_by_confidence() -> None:
    page = Page(answers_page("squad", ROWS, SCORES))
    assert page.elements("td") == [
        *("0% to 20%", "1", "0.0", "0.0"),
        *("40% to 60%", "1", "0.0", "50.0"),
        *("90% to 100%", "2", "50.0", "50.0"),
    ]


def test_blanks_of_a_text_are_kept() -> None:
    text = "Oslo  is\ta \n city"
    source = answers_page("squad", [Answered("x", text, text, (6, 8), [], None, 0.5, None, None)], SCORES)
    assert re.search(r"\.question h3, \.question p \{[^}]*white-space: pre-wrap", source)
    page = Page(source)
    assert page.elements("h3")[-1] == text and text in page.elements("p")


def test_texts_cannot_become_markup() -> None:
    evil = "<script>alert('x')</script> & \"<b>"
    row = Answered(evil, evil, evil, (0, 8), [evil], (9, 14), 0.5, 0, 0.0)
    page = Page(answers_page(evil, [row], SCORES))
    assert not {"script", "b"} & set(page.tags)
    assert page.elements("h1") == [evil]
    assert evil in "".join(page.elements("article", "question"))


def test_questions_without_expected_answers() -> None:
    rows = [row._replace(expected=[], expected_at=None, exact_match=None, f1=None) for row in ROWS]
    page = Page(answers_page("squad", rows, {}))
    assert len(page.elements("article", "unmarked")) == 4
    assert page.elements("td") == []
    assert "input" not in page.tags


def test_an_empty_answer_and_an_empty_list() -> None:
    assert len(Page(answers_page("squad", [ROWS[0]._replace(answer=(0, 0))], SCORES)).elements("article")) == 1
    assert Page(answers_page("squad", [], {})).elements("article") == []
