"""Renders the page of SQuAD answers in their contexts, marked right or wrong, with the model's confidence."""

from __future__ import annotations

from itertools import groupby
from statistics import fmean
from typing import List, Mapping, NamedTuple, Optional, Sequence, Tuple

from reports.page import Card
from reports.templating import fill
from utilities.metric_names import readable

RIGHT, PARTLY, WRONG, UNMARKED = "right", "partly", "wrong", "unmarked"
VERDICTS = {RIGHT: "right", PARTLY: "partly right", WRONG: "wrong"}

_AROUND = 160  # characters of the context shown before and after an answer
_BANDS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0)

Span = Tuple[int, int]


class Excerpt(NamedTuple):
    """A stretch of a context, and how it is marked: ``answer``, ``expected``, or not at all."""

    text: str
    kind: str = ""


class Article(NamedTuple):
    title: str
    note: str
    answered: List[Answered]


class Answered(NamedTuple):
    """A question and the model's answer.

    Spans are characters of the context, [begin, end); that of the expected answer is the first one's. Confidence and
    scores are from 0 to 1; without expected answers there are no scores.
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

    def remarks(self) -> str:
        """Return verdict, confidence and expected answers as text."""
        remarks = [f"{self.confidence:.0%} confidence"]
        if self.verdict != UNMARKED:
            remarks = [f"{VERDICTS[self.verdict]}, F1 {self.f1:.2f}", *remarks]
            if self.verdict != RIGHT:
                remarks.append(f"expected: {' | '.join(dict.fromkeys(self.expected)) or 'no answer'}")
            if self.answer[0] == self.answer[1]:
                remarks.append("answered: no answer")
        return "; ".join(remarks)

    def excerpt(self) -> List[Excerpt]:
        """Return the context around the answer and the expected answer, both marked, with the rest elided."""
        marks = [(*self.answer, "answer")] if self.answer[0] < self.answer[1] else []
        other = self.expected_at
        if other is not None and self.verdict != RIGHT and (other[0] >= self.answer[1] or other[1] <= self.answer[0]):
            marks = sorted([*marks, (*other, "expected")])
        if not marks:  # nothing was answered, or nothing expected
            shown = _word_end(self.context, 2 * _AROUND)
            return [Excerpt(self.context[:shown]), *([Excerpt(" …")] if shown < len(self.context) else [])]
        excerpts: List[Excerpt] = []
        shown = 0  # the text before this character has been shown or elided
        for begin, end, kind in marks:
            before = max(shown, _word_start(self.context, begin - _AROUND))
            gap = " … " if before > shown else ""
            excerpts.append(Excerpt(gap + self.context[before:begin]))
            excerpts.append(Excerpt(self.context[begin:end], kind))
            next_mark = min((mark[0] for mark in marks if mark[0] >= end), default=len(self.context))
            shown = min(_word_end(self.context, end + _AROUND), next_mark)
            excerpts.append(Excerpt(self.context[end:shown]))
        return [*excerpts, Excerpt(" …")] if shown < len(self.context) else excerpts


def answers_page(title: str, answered: Sequence[Answered], scores: Mapping[str, float]) -> str:
    """Return the page as HTML; the questions of an article are adjacent, and scores are in percent."""
    is_marked = any(each.verdict != UNMARKED for each in answered)
    return fill(
        "answers.html",
        title=title,
        cards=_cards(answered, scores),
        calibration=_calibration(answered),
        choices={"all": "all", **VERDICTS} if is_marked else {},
        articles=[_article(name, list(group)) for name, group in groupby(answered, key=lambda each: each.article)],
    )


def _cards(answered: Sequence[Answered], scores: Mapping[str, float]) -> List[Card]:
    cards = [Card(readable(name), f"{value:.2f}", "percent") for name, value in scores.items()]
    cards.append(Card("questions", f"{len(answered):,}"))
    if scores:
        counts = {verdict: sum(each.verdict == verdict for each in answered) for verdict in VERDICTS}
        cards += [
            Card(name, f"{counts[verdict]:,}", f"{100 * counts[verdict] / len(answered):.1f} percent")
            for verdict, name in VERDICTS.items()
        ]
    return cards


def _calibration(answered: Sequence[Answered]) -> List[List[str]]:
    """Return the rows of the table of exact match and F1 by confidence."""
    marked = [each for each in answered if each.verdict != UNMARKED]
    rows = []
    for low, high in zip(_BANDS, _BANDS[1:]):
        band = [each for each in marked if low <= each.confidence < high or each.confidence == high == 1]
        if band:
            exact, f1 = _means(band)
            rows.append([f"{low:.0%} to {high:.0%}", f"{len(band):,}", f"{exact:.1f}", f"{f1:.1f}"])
    return rows


def _means(answered: Sequence[Answered]) -> Tuple[float, float]:
    """Return exact match and F1 on average, in percent."""
    return 100 * fmean(each.exact_match or 0.0 for each in answered), 100 * fmean(each.f1 or 0.0 for each in answered)


def _article(name: str, answered: List[Answered]) -> Article:
    marked = [each for each in answered if each.verdict != UNMARKED]
    note = f"{len(answered)} question{'s' if len(answered) > 1 else ''}"
    if marked:
        exact, f1 = _means(marked)
        note += f", exact match {exact:.1f}, F1 {f1:.1f}"
    return Article(f"{name.replace('_', ' ')} – ", note, answered)


def _word_start(context: str, index: int) -> int:
    return 0 if index <= 0 else context.rfind(" ", 0, index) + 1


def _word_end(context: str, index: int) -> int:
    end = context.find(" ", index)
    return len(context) if end < 0 else end
