"""Reads and checks SQuAD's questions, contexts and answers, from files or the ``datasets`` library.

Errors name the place in the file. Source of the format: Rajpurkar et al. 2016, "SQuAD: 100,000+ Questions for
Machine Comprehension of Text"; version 1.1.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from typing_extensions import Annotated

from data_utils.hub_dataset import hub_split
from utilities.errors import UserError
from utilities.files import parse_json
from utilities.files import sha256 as file_digest
from utilities.tables import read_text, short
from utilities.validation import first_problem

TRAIN, VALIDATION = "train", "validation"


def open_squad(folder: Optional[str], file_name: str, hub_name: str, split: str) -> SquadSet:
    """Return a data set from a file, or from the ``datasets`` library if no folder is given.

    Args:
        folder: the folder of the file; None: use the library.
        file_name: name in the folder, or a whole path.
        hub_name: the library's name of the data set, or a folder that the library can read.
        split: the library's name of the split.
    """
    if folder is not None:
        return read_squad(Path(folder) / file_name)
    document = squad_document(hub_split(hub_name, None, split, f"a folder with {file_name}"))
    content = json.dumps(document).encode()
    return parse_squad(document, f"{hub_name} ({split})", hashlib.sha256(content).hexdigest())


def squad_document(rows: Iterable[Mapping[str, Any]]) -> Dict[str, Any]:
    """Return the library's rows, one per question, in the structure of SQuAD's files."""
    articles: List[Dict[str, Any]] = []
    for row in rows:
        title, context = row.get("title") or "untitled", row.get("context")
        if not articles or articles[-1]["title"] != title:
            articles.append({"title": title, "paragraphs": []})
        paragraphs = articles[-1]["paragraphs"]
        if not paragraphs or paragraphs[-1]["context"] != context:
            paragraphs.append({"context": context, "qas": []})
        answers = row.get("answers") or {}
        marked = zip(answers.get("text", ()), answers.get("answer_start", ()))
        paragraphs[-1]["qas"].append(
            {
                "id": row.get("id"),
                "question": row.get("question"),
                "answers": [{"text": text, "answer_start": start} for text, start in marked],
            }
        )
    return {"data": articles}


class Answer(NamedTuple):
    """An answer given by an annotator: its text and the position in the context at which it begins."""

    text: str
    start: int


class Paragraph(NamedTuple):
    """A paragraph and the title of its article."""

    title: str
    context: str


class Question(NamedTuple):
    """A question about the paragraph with this number; without answers it can only be predicted."""

    id: str
    text: str
    paragraph: int
    answers: Tuple[Answer, ...]


class SquadSet(NamedTuple):
    """A data set in memory, with the file or data set that it was read from, and the SHA-256 of its content."""

    paragraphs: List[Paragraph]
    questions: List[Question]
    origin: str
    sha256: str

    def context(self, question: Question) -> str:
        """Return the text that a question refers to."""
        return self.paragraphs[question.paragraph].context


def read_squad(path: Path) -> SquadSet:
    """Read a file in SQuAD 1.1's format.

    Raises:
        UserError: the file cannot be read, or is malformed; the message names the place.

    Example:
        >>> read_squad(Path("dev-v1.1.json")).questions[0].text  # doctest: +SKIP
        'Which NFL team represented the AFC at Super Bowl 50?'
    """
    text = read_text(path)
    try:
        document = parse_json(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: is not valid JSON ({error}); download the file again") from error
    return parse_squad(document, str(path), file_digest(path))


class _Part(BaseModel):
    """A part of the file: a value of another type is refused, and further keys are allowed."""

    model_config = ConfigDict(strict=True)


def _without_half_characters(text: str) -> str:
    text.encode("utf-8")  # fails for a lone surrogate, which no tokenizer takes
    return text


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("a text is needed")
    return text


def _false(value: Any) -> Any:
    if value:
        raise ValueError("questions of SQuAD 2.0 are not read")
    return value


_Text = Annotated[str, AfterValidator(_without_half_characters)]
_Words = Annotated[_Text, AfterValidator(_not_blank)]


class _Answer(_Part):
    text: _Words
    answer_start: Annotated[int, Field(ge=0)]


class _Question(_Part):
    id: Annotated[_Text, Field(min_length=1)]
    question: _Text
    answers: List[_Answer] = []
    is_impossible: Annotated[Any, AfterValidator(_false)] = False


class _Paragraph(_Part):
    context: _Words
    qas: List[_Question]


class _Article(_Part):
    title: str = "untitled"
    paragraphs: List[_Paragraph]


class _Document(_Part):
    data: List[_Article]


def parse_squad(document: Any, origin: str, sha256: str) -> SquadSet:
    """Return a data set from decoded JSON, in the form of ``_Document``.

    Raises:
        UserError: something is missing, of another type, or duplicate.
    """
    try:
        articles = _Document.model_validate(document).data
    except ValidationError as error:
        fix = "this is not the form of SQuAD 1.1: correct it, or download the file again"
        raise UserError(f"{origin}: {first_problem(error)}; {fix}") from error
    paragraphs: List[Paragraph] = []
    questions: List[Question] = []
    places: Dict[str, str] = {}
    for article_number, article in enumerate(articles):
        for paragraph_number, paragraph in enumerate(article.paragraphs):
            for number, entry in enumerate(paragraph.qas):
                place = f"data[{article_number}].paragraphs[{paragraph_number}].qas[{number}].id"
                if places.setdefault(entry.id, place) != place:
                    same = f"is {short(entry.id)}, as {places[entry.id]} is"
                    raise UserError(f"{origin}: {place} {same}; give each question its own id")
                answers = tuple(Answer(answer.text, answer.answer_start) for answer in entry.answers)
                questions.append(Question(entry.id, entry.question, len(paragraphs), answers))
            paragraphs.append(Paragraph(article.title, paragraph.context))
    if not questions:
        raise UserError(f"{origin}: contains no questions; give a SQuAD 1.1 file")
    return SquadSet(paragraphs, questions, origin, sha256)


def questions_about(pairs: Sequence[Tuple[str, ...]]) -> SquadSet:
    """Return questions without answers from pairs of a question and its context; their ids are their positions."""
    contexts = {context: number for number, context in enumerate(dict.fromkeys(context for _, context in pairs))}
    questions = [Question(str(n), text, contexts[context], ()) for n, (text, context) in enumerate(pairs)]
    return SquadSet([Paragraph("untitled", context) for context in contexts], questions, "the questions", "")


def answer_position(context: str, answer: Answer) -> Optional[int]:
    """Return the position of an answer: as marked, else of the nearest occurrence of its text, else None."""
    if context.startswith(answer.text, answer.start):
        return answer.start
    return min(_occurrences(context, answer.text), key=lambda position: abs(position - answer.start), default=None)


def _occurrences(context: str, text: str) -> Iterator[int]:
    position = context.find(text)
    while position >= 0:
        yield position
        position = context.find(text, position + 1)


class Alignment(NamedTuple):
    """The agreement of the marked answers with their contexts."""

    answers: int
    moved: List[str]  # ids of questions with an answer whose text is at another position than marked
    absent: List[str]  # ids of questions with an answer whose text is not in the context

    def notes(self) -> List[str]:
        """Return a line for each kind of disagreement."""
        named = (
            (self.moved, "are elsewhere in the context than marked; the nearest occurrence is used"),
            (self.absent, "are not in the context"),
        )
        return [
            f"{len(ids):,} of {self.answers:,} answers {reason} (first: question {ids[0]})"
            for ids, reason in named
            if ids
        ]


def check_alignment(squad: SquadSet) -> Alignment:
    """Compare each answer's text with the context at the marked position."""
    moved: List[str] = []
    absent: List[str] = []
    answers = 0
    for question in squad.questions:
        context = squad.context(question)
        answers += len(question.answers)
        for answer in question.answers:
            position = answer_position(context, answer)
            if position is None:
                absent.append(question.id)
            elif position != answer.start:
                moved.append(question.id)
    return Alignment(answers, moved, absent)
