"""Reads and checks SQuAD's questions, contexts and answers, from files or the ``datasets`` library.

Besides SQuAD's own files, exports of annotation tools are read, which have numbers or nulls where text stands or the
reverse, lists of paragraphs, and Hugging Face's rows, one per question. Errors name the place in the file. Source of
the format: Rajpurkar et al. 2016, "SQuAD: 100,000+ Questions for Machine Comprehension of Text"; version 1.1, and 2.0
(Rajpurkar et al. 2018), in which some questions are impossible to answer.
"""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Any, Dict, Generic, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator
from typing_extensions import Annotated

from data_utils.hub_dataset import hub_split
from utilities.errors import UserError
from utilities.files import json_digest, parse_json
from utilities.files import sha256 as file_digest
from utilities.tables import json_rows, read_text, short
from utilities.validation import Strict, first_problem

TRAIN, VALIDATION = "train", "validation"


def open_squad(folder: Optional[str], file_name: str, hub_name: str, split: str) -> SquadSet:
    """Return a data set from a file, whose name may be a whole path, or else from the ``datasets`` library."""
    if folder is not None:
        return read_squad(Path(folder) / file_name)
    rows = list(hub_split(hub_name, None, split, f"a folder with {file_name}"))
    return parse_squad(rows, f"{hub_name} ({split})", json_digest(rows))


class Answer(NamedTuple):
    """An answer given by an annotator: its text, and where it begins in the context; -1 if that is not known."""

    text: str
    start: int


class Paragraph(NamedTuple):
    title: str
    context: str


class Question(NamedTuple):
    """A question about the paragraph with this number; without answers it is impossible, or can only be predicted."""

    id: str
    text: str
    paragraph: int
    answers: Tuple[Answer, ...]
    is_impossible: bool = False


class SquadSet(NamedTuple):
    """A data set in memory, with the file or data set that it was read from, and the SHA-256 of its content."""

    paragraphs: List[Paragraph]
    questions: List[Question]
    origin: str
    sha256: str

    def context(self, question: Question) -> str:
        return self.paragraphs[question.paragraph].context

    @property
    def impossible(self) -> int:
        """The number of questions that are marked as having no answer in their context."""
        return sum(question.is_impossible for question in self.questions)

    def has_scores(self, no_answers: bool) -> bool:
        """Return whether there is a question to score, if those without an answer are scored, or are not."""
        return any(question.answers or (no_answers and question.is_impossible) for question in self.questions)


def read_squad(path: Path) -> SquadSet:
    """Read a file in SQuAD's format, or in one of the others, also as JSON Lines."""
    text = read_text(path)
    if _is_json_lines(text):
        document: Any = [row for _, row in json_rows(path)]
    else:
        try:
            document = parse_json(text)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}: is not valid JSON ({error}); correct it, or name another file") from error
    return parse_squad(document, str(path), file_digest(path))


def _is_json_lines(text: str) -> bool:
    """Return whether the first line is a whole JSON object, and others follow."""
    first, _, others = text.lstrip().partition("\n")
    try:
        return bool(others.strip()) and isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False


def _without_half_characters(text: str) -> str:
    text.encode("utf-8")  # fails for a lone surrogate, which no tokenizer takes
    return text


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("a text is needed")
    return text


def _number_as_text(value: Any) -> Any:
    return str(value) if type(value) is int else value


def _text_as_number(value: Any) -> Any:
    is_written = isinstance(value, str) and value.lstrip("-").isdecimal()
    return int(value) if is_written or (isinstance(value, float) and value.is_integer()) else value


def _listed_answers(value: Any) -> Any:
    """Return answers as a list of objects, not an object of lists; null, and an empty text at -1, stand for none."""
    if isinstance(value, dict) and isinstance(value.get("text"), list) and isinstance(value.get("answer_start"), list):
        if len(value["text"]) != len(value["answer_start"]):
            raise ValueError("there are as many texts as positions")
        value = [{"text": text, "answer_start": start} for text, start in zip(value["text"], value["answer_start"])]
    if isinstance(value, list):
        return [each for each in value if not (isinstance(each, dict) and _is_none(each))]
    return [] if value is None else value


def _is_none(answer: Mapping[str, Any]) -> bool:
    return answer.get("text") == "" and answer.get("answer_start") == -1


_Text = Annotated[str, BeforeValidator(_number_as_text), AfterValidator(_without_half_characters)]
_Words = Annotated[_Text, AfterValidator(_not_blank)]


class _Answer(Strict):
    text: _Words
    answer_start: Annotated[int, BeforeValidator(_text_as_number), Field(ge=-1)]


class _Question(Strict, frozen=False):
    id: Annotated[_Text, Field(min_length=1)]
    question: _Text
    answers: Annotated[List[_Answer], BeforeValidator(_listed_answers)] = Field(default_factory=list)
    is_impossible: Annotated[Optional[bool], Field(strict=False)] = False

    @model_validator(mode="before")
    @classmethod
    def _without_answers_if_impossible(cls, values: Any) -> Any:
        """Leave out answers to an impossible question, which some exports have as an empty text."""
        return {**values, "answers": []} if isinstance(values, dict) and values.get("is_impossible") is True else values


class _Paragraph(Strict):
    context: _Words
    qas: List[_Question]


class _Article(Strict):
    title: Optional[_Text] = None
    paragraphs: List[_Paragraph]


class _Row(_Question):
    title: Optional[_Text] = None
    context: _Words


Content = TypeVar("Content", bound=Strict)


class _Data(Strict, Generic[Content]):
    data: List[Content]


_Placed = Tuple[str, _Question]  # the place of a question in the file, and the question


def _contexts(document: Any) -> Iterator[Tuple[str, str, List[_Placed]]]:
    if isinstance(document, dict) and "data" not in document and "context" in document:  # the only line of a file
        document = [document]
    if isinstance(document, list):
        document = {"data": document}
    data = document.get("data") if isinstance(document, dict) else None
    first = data[0] if isinstance(data, list) and data and isinstance(data[0], dict) else {}
    if "paragraphs" not in first and "qas" in first:
        for number, paragraph in enumerate(_Data[_Paragraph].model_validate(document).data):
            placed = [(f"data[{number}].qas[{n}]", each) for n, each in enumerate(paragraph.qas)]
            yield "untitled", paragraph.context, placed
    elif "paragraphs" not in first and "context" in first:
        rows = [(f"data[{number}]", row) for number, row in enumerate(_Data[_Row].model_validate(document).data)]
        if any(row.answers for _, row in rows):  # Hugging Face's rows of SQuAD 2.0; test data have no answers at all
            for _, row in rows:
                row.is_impossible = row.is_impossible or ("answers" in row.model_fields_set and not row.answers)
        for (title, context), group in groupby(rows, key=lambda row: (row[1].title or "untitled", row[1].context)):
            yield title, context, list(group)
    else:
        for number, article in enumerate(_Data[_Article].model_validate(document).data):
            for position, paragraph in enumerate(article.paragraphs):
                place = f"data[{number}].paragraphs[{position}]"
                placed = [(f"{place}.qas[{n}]", each) for n, each in enumerate(paragraph.qas)]
                yield article.title or "untitled", paragraph.context, placed


def parse_squad(document: Any, origin: str, sha256: str) -> SquadSet:
    try:
        contexts = list(_contexts(document))
    except ValidationError as error:
        fix = "this is not the form of SQuAD; correct it there, or name another file"
        raise UserError(f"{origin}: {first_problem(error)}; {fix}") from error
    paragraphs: List[Paragraph] = []
    questions: List[Question] = []
    places: Dict[str, str] = {}
    for title, context, placed in contexts:
        for place, entry in placed:
            if entry.id in places:
                same = f"is {short(entry.id)}, as {places[entry.id]}.id is"
                raise UserError(f"{origin}: {place}.id {same}; give each question its own id")
            places[entry.id] = place
            given = [] if entry.is_impossible else entry.answers  # which may have been "true" or 1
            answers = tuple(Answer(answer.text, answer.answer_start) for answer in given)
            question = Question(entry.id, entry.question, len(paragraphs), answers, bool(entry.is_impossible))
            questions.append(question)
        paragraphs.append(Paragraph(title, context))
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
    if answer.start >= 0 and context.startswith(answer.text, answer.start):
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
        moved = "are elsewhere in the context than marked; the nearest occurrence is used"
        named = ((self.moved, moved), (self.absent, "are not in the context"))
        answers = f"of {self.answers:,} answers"
        return [f"{len(ids):,} {answers} {reason} (first: question {ids[0]})" for ids, reason in named if ids]


def check_alignment(squad: SquadSet) -> Alignment:
    """Compare each answer's text with the context at the marked position."""
    moved: List[str] = []
    absent: List[str] = []
    for question in squad.questions:
        for answer in question.answers:
            position = answer_position(squad.context(question), answer)
            if position is None:
                absent.append(question.id)
            elif position != answer.start:
                moved.append(question.id)
    return Alignment(sum(len(question.answers) for question in squad.questions), moved, absent)
