"""The six classification tasks of CLUE (Xu et al. 2020) in the files of its own archives, JSON lines.

How WSC's spans and CSL's keywords become text follows CLUE's published baselines, so that scores can be compared.
"""

from __future__ import annotations

from typing import Any, List, Tuple

from data_utils.classification.tasks import (
    CLUE,
    BenchmarkTask,
    FieldError,
    Label,
    Row,
    SourceFile,
    Split,
    plain,
    short,
    text_of,
)

HUB = "clue/clue"
NOUN_MARKS, PRONOUN_MARKS = ("_", "_"), ("[", "]")


def marked_spans(row: Row) -> Tuple[str]:
    """WSC: the text with the noun between underscores and the pronoun in brackets.

    Example:
        >>> target = {"span1_text": "床", "span1_index": 1, "span2_text": "它", "span2_index": 3}
        >>> marked_spans({"text": "在床上它响了", "target": target})
        ('在_床_上[它]响了',)
    """
    text = text_of(row, "text")
    target = row.get("target")
    if not isinstance(target, dict):
        raise FieldError("target", "is missing" if target is None else f"is {short(target)}, not an object")
    marks: List[Tuple[int, int, str]] = []
    for span, (opening, closing) in (("span1", NOUN_MARKS), ("span2", PRONOUN_MARKS)):
        start, end = span_of(text, target, span)
        marks += [(start, 1, opening), (end, 0, closing)]  # where two meet, the first is closed before
    for place, _, mark in sorted(marks, reverse=True):
        text = text[:place] + mark + text[place:]
    return (text,)


def span_of(text: str, target: Row, span: str) -> Tuple[int, int]:
    """Start and end of a span.

    Raises:
        FieldError: the text has something else there.
    """
    name = f"target.{span}_index"
    words, start = target.get(f"{span}_text"), target.get(f"{span}_index")
    if not isinstance(words, str) or not words:
        raise FieldError(f"target.{span}_text", "is missing" if words is None else f"is {short(words)}, not a text")
    if type(start) is not int:
        raise FieldError(name, "is missing" if start is None else f"is {short(start)}, not a whole number")
    end = start + len(words)
    if start < 0 or text[start:end] != words:
        raise FieldError(name, f"is {start}, but the text has {text[max(start, 0) : end]!r} there, not {words!r}")
    return start, end


def keywords_and_abstract(row: Row) -> Tuple[str, str]:
    """CSL: the keywords, with spaces between, and the abstract."""
    keywords = row.get("keyword")
    if not isinstance(keywords, list) or not all(isinstance(word, str) for word in keywords):
        problem = "is missing" if keywords is None else f"is {short(keywords)}, not a list of texts"
        raise FieldError("keyword", problem)
    return " ".join(keywords), text_of(row, "abst")


def numbered(*values: int) -> Tuple[Label, ...]:
    """Classes that are numbers."""
    return tuple(Label(str(value), str(value)) for value in values)


def unchanged_test(name: str) -> Tuple[Split, ...]:
    """Test data that CLUE has never changed."""
    return (Split((SourceFile("test.json"),), "test", submission=f"{name}_predict.json"),)


def replaced_test(name: str) -> Tuple[Split, ...]:
    """Test data that CLUE 1.1 replaced; predictions for the first are still taken."""
    current = (SourceFile("test.json"), SourceFile("test1.1.json"))
    return (
        Split(current, "test", "1.1", f"{name}11_predict.json"),
        Split((SourceFile("test1.0.json"),), None, "1.0", f"{name}10_predict.json", optional=True),
    )


def task(name: str, folder: str, fields: Tuple[str, ...], labels: Tuple[Label, ...], **more: Any) -> BenchmarkTask:
    """An entry with what the tasks have in common."""
    settings = {
        "texts": plain(*fields),
        "is_pair": len(fields) == 2,
        "hub": (HUB, name),
        "test": unchanged_test(name),
        **more,
    }
    return BenchmarkTask(
        name=name,
        benchmark=CLUE,
        folders=(name, f"{folder}_public", folder),
        metrics=("accuracy",),
        train=Split((SourceFile("train.json"),), "train"),
        validation=(Split((SourceFile("dev.json"),), "validation"),),
        labels=labels,
        id_field="id",
        **settings,
    )


PAIR = ("sentence1", "sentence2")
TNEWS_TOPICS = {
    100: "story", 101: "culture", 102: "entertainment", 103: "sports", 104: "finance", 106: "house", 107: "car",
    108: "edu", 109: "tech", 110: "military", 112: "travel", 113: "world", 114: "stock", 115: "agriculture",
    116: "game",
}  # fmt: skip

TASKS: Tuple[BenchmarkTask, ...] = (
    task("afqmc", "afqmc", PAIR, (Label("0", "different"), Label("1", "same"))),
    task(
        "tnews", "tnews", ("sentence",),
        tuple(Label(str(number), f"news_{topic}") for number, topic in TNEWS_TOPICS.items()),
        test=replaced_test("tnews"),
    ),
    task("iflytek", "iflytek", ("sentence",), numbered(*range(119))),
    task(
        "cmnli", "cmnli", PAIR, tuple(Label(name, name) for name in ("neutral", "entailment", "contradiction")),
        undecided=frozenset("-"),
    ),
    task(
        "wsc", "cluewsc2020", ("text",), (Label("false", "false"), Label("true", "true")),
        texts=marked_spans, test=replaced_test("cluewsc"), hub=(HUB, "cluewsc2020"),
    ),
    task(
        "csl", "csl", ("keyword", "abst"), (Label("0", "false keywords"), Label("1", "true keywords")),
        texts=keywords_and_abstract,
    ),
)  # fmt: skip
