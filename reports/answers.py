"""Renders the page of SQuAD answers in their contexts, marked right or wrong, with the model's confidence."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Callable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from reports.html import Markup, card, element, join, page, table, verbatim
from reports.page import STYLE

ANSWERS_STYLE = Path(__file__).with_name("answers.css")
RIGHT, PARTLY, WRONG, UNMARKED = "right", "partly", "wrong", "unmarked"
VERDICTS = {RIGHT: "right", PARTLY: "partly right", WRONG: "wrong"}

_AROUND = 160  # characters of the context shown before and after an answer
_BANDS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0)

Span = Tuple[int, int]


class Answered(NamedTuple):
    """A question and the model's answer.

    Attributes:
        article: title of the article.
        question, context: the texts.
        answer: the answer's span of characters of the context, [begin, end).
        expected: the annotators' answers; may be empty.
        expected_at: span of the first of them, if known.
        confidence: 0 to 1.
        exact_match: 0 or 1; None without expected answers.
        f1: 0 to 1; None without expected answers.
    """

    article: str
    question: str
    context: str
    answer: Span
    expected: Sequence[str]
    expected_at: Optional[Span]
    confidence: float
    exact_match: Optional[float]
    f1: Optional[float]

    @property
    def verdict(self) -> str:
        """Return ``right``, ``partly``, ``wrong`` or ``unmarked``."""
        if self.exact_match is None or self.f1 is None:
            return UNMARKED
        return RIGHT if self.exact_match else PARTLY if self.f1 else WRONG


def answers_page(title: str, answered: Sequence[Answered], scores: Mapping[str, float]) -> str:
    """Return the page as HTML.

    Args:
        title: its heading.
        answered: the questions in the order of the file; those of an article are adjacent.
        scores: the scores of all questions, in percent.
    """
    style = STYLE.read_text(encoding="utf-8") + ANSWERS_STYLE.read_text(encoding="utf-8")
    articles = [_article(name, list(group)) for name, group in groupby(answered, key=lambda each: each.article)]
    return page(
        title, style, _header(title), _cards(answered, scores), _calibration(answered), _filter(answered), *articles
    )


def _header(title: str) -> Markup:
    legend = join(
        [
            "Each answer is ",
            element("mark", "marked", class_="answer"),
            " in its context; if it is not right, so is the ",
            element("mark", "expected", class_="expected"),
            " answer. Confidence is the answer's share among the model's candidates for the question.",
        ]
    )
    return element("header", element("h1", title), element("p", legend, class_="soft"))


def _cards(answered: Sequence[Answered], scores: Mapping[str, float]) -> Markup:
    cards = [card(name.replace("_", " "), f"{value:.2f}", "percent") for name, value in scores.items()]
    cards.append(card("questions", f"{len(answered):,}"))
    if scores:
        counts = {verdict: sum(each.verdict == verdict for each in answered) for verdict in VERDICTS}
        cards += [
            card(name, f"{counts[verdict]:,}", f"{100 * counts[verdict] / len(answered):.1f} percent")
            for verdict, name in VERDICTS.items()
        ]
    return element("section", *cards, class_="cards")


def _calibration(answered: Sequence[Answered]) -> Markup:
    """Return the table of exact match and F1 by confidence."""
    marked = [each for each in answered if each.verdict != UNMARKED]
    rows = []
    for low, high in zip(_BANDS, _BANDS[1:]):
        band = [each for each in marked if low <= each.confidence < high or each.confidence == high == 1]
        if band:
            exact, f1 = _mean(band, lambda each: each.exact_match), _mean(band, lambda each: each.f1)
            rows.append([f"{low:.0%} to {high:.0%}", f"{len(band):,}", f"{exact:.1f}", f"{f1:.1f}"])
    if not rows:
        return Markup("")
    heading = element("h2", "Accuracy by confidence")
    return join([heading, table(["confidence", "questions", "exact match, %", "F1, %"], rows)])


def _mean(answered: Sequence[Answered], mark: Callable[[Answered], Optional[float]]) -> float:
    return 100 * fmean(mark(each) or 0.0 for each in answered)


def _filter(answered: Sequence[Answered]) -> Markup:
    """Return buttons that select the questions of one verdict, without a script."""
    heading = element("h2", "Questions")
    if all(each.verdict == UNMARKED for each in answered):
        return heading
    choices = [("all", "all", {"checked": ""})] + [(verdict, name, {}) for verdict, name in VERDICTS.items()]
    buttons = [
        element("label", element("input", type="radio", name_="show", id=f"show-{verdict}", **checked), f" {name}")
        for verdict, name, checked in choices
    ]
    return join([heading, element("div", *buttons, class_="filter")])


def _article(name: str, answered: List[Answered]) -> Markup:
    marked = [each for each in answered if each.verdict != UNMARKED]
    note = f"{len(answered)} question{'s' if len(answered) > 1 else ''}"
    if marked:
        exact, f1 = _mean(marked, lambda each: each.exact_match), _mean(marked, lambda each: each.f1)
        note += f", exact match {exact:.1f}, F1 {f1:.1f}"
    summary = element("summary", verbatim(f"{name.replace('_', ' ')} – "), element("span", note, class_="soft"))
    return element("details", summary, *map(_question, answered), class_="article", open="")


def _question(each: Answered) -> Markup:
    facts = [f"{each.confidence:.0%} confidence"]
    if each.verdict != UNMARKED:
        facts = [f"{VERDICTS[each.verdict]}, F1 {each.f1:.2f}", *facts]
        if each.verdict != RIGHT:
            facts.append(f"expected: {' | '.join(dict.fromkeys(each.expected))}")
    parts = [
        element("h3", verbatim(each.question)),
        element("p", _excerpt(each)),
        element("p", verbatim("; ".join(facts)), class_="soft"),
    ]
    return element("article", *parts, class_=f"question {each.verdict}")


def _excerpt(each: Answered) -> Markup:
    """Return the context around the answer and the expected answer, both marked, with the rest elided."""
    marks = [(*each.answer, "answer")] if each.answer[0] < each.answer[1] else []
    other = each.expected_at
    if other is not None and each.verdict != RIGHT and (other[0] >= each.answer[1] or other[1] <= each.answer[0]):
        marks = sorted([*marks, (*other, "expected")])
    parts: List[Markup] = []
    shown = 0  # the text before this character has been shown or elided
    for begin, end, kind in marks:
        before = max(shown, _word_start(each.context, begin - _AROUND))
        gap = " … " if before > shown else ""
        parts.append(verbatim(gap + each.context[before:begin]))
        parts.append(element("mark", verbatim(each.context[begin:end]), class_=kind))
        next_mark = min((mark[0] for mark in marks if mark[0] >= end), default=len(each.context))
        shown = min(_word_end(each.context, end + _AROUND), next_mark)
        parts.append(verbatim(each.context[end:shown]))
    return join([*parts, Markup(" …") if shown < len(each.context) else Markup("")])


def _word_start(context: str, index: int) -> int:
    return 0 if index <= 0 else context.rfind(" ", 0, index) + 1


def _word_end(context: str, index: int) -> int:
    end = context.find(" ", index)
    return len(context) if end < 0 else end
