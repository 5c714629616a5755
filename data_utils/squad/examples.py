"""Reads and checks SQuAD's questions, contexts and answers, from files or the ``datasets`` library.

Errors name article, paragraph and question. Source of the format: Rajpurkar et al. 2016, "SQuAD: 100,000+ Questions for
Machine Comprehension of Text"; version 1.1.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from data_utils.hub_dataset import hub_split
from utilities.errors import UserError
from utilities.files import parse_json
from utilities.tables import short

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
        UserError: the file cannot be read, or is malformed; the message names article, paragraph and question.

    Example:
        >>> read_squad(Path("dev-v1.1.json")).questions[0].text  # doctest: +SKIP
        'Which NFL team represented the AFC at Super Bowl 50?'
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give the path of a SQuAD 1.1 file") from error
    try:
        document = parse_json(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start} is not UTF-8; download the file again") from error
    except json.JSONDecodeError as error:
        raise UserError(
            f"{path}:{error.lineno}:{error.colno}: is not valid JSON ({error.msg}); download the file again"
        ) from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: is not valid JSON ({error}); download the file again") from error
    return parse_squad(document, str(path), hashlib.sha256(content).hexdigest())


def parse_squad(document: Any, origin: str, sha256: str) -> SquadSet:
    """Return a data set from decoded JSON.

    Args:
        document: ``{"data": [{"title", "paragraphs": [{"context", "qas": [{"id", "question", "answers"}]}]}]}``.

    Raises:
        UserError: something is missing, of another type, or duplicate.
    """
    whole = _Location(origin, ())
    paragraphs: List[Paragraph] = []
    questions: List[Question] = []
    locations: Dict[str, _Location] = {}
    for number, article in enumerate(whole.items(whole.object(document), "data"), 1):
        in_article = whole.inside(f"article {number}", article, "title")
        title = in_article.text(in_article.object(article), "title", default="untitled")
        for paragraph_number, paragraph in enumerate(in_article.items(article, "paragraphs"), 1):
            in_paragraph = in_article.inside(f"paragraph {paragraph_number}")
            context = in_paragraph.text(in_paragraph.object(paragraph), "context")
            if not context.strip():
                raise in_paragraph.error("context is empty", "remove the paragraph")
            for question_number, entry in enumerate(in_paragraph.items(paragraph, "qas"), 1):
                location = in_paragraph.inside(f"question {question_number}", entry, "id")
                question = _question(location, entry, len(paragraphs))
                if question.id in locations:
                    twice = f"has the id of {locations[question.id].names}"
                    raise location.error(twice, "give each question its own id")
                locations[question.id] = location
                questions.append(question)
            paragraphs.append(Paragraph(title, context))
    if not questions:
        raise whole.error("contains no questions", "give a SQuAD 1.1 file")
    return SquadSet(paragraphs, questions, origin, sha256)


def _question(location: _Location, entry: Any, paragraph: int) -> Question:
    fields = location.object(entry)
    identity = location.text(fields, "id")
    if not identity:
        raise location.error("id is empty", "give each question its own id")
    if fields.get("is_impossible"):
        raise location.error("is_impossible is true: this is SQuAD 2.0", "use the files of SQuAD 1.1")
    answers = []
    for number, answer in enumerate(location.items(fields, "answers", default=[]), 1):
        in_answer = location.inside(f"answer {number}")
        marked = in_answer.object(answer)
        text, start = in_answer.text(marked, "text"), in_answer.value(marked, "answer_start", int)
        if not text.strip():
            raise in_answer.error("text is empty", "remove the answer")
        if start < 0:
            raise in_answer.error(f"answer_start is {start}", "count characters of the context from 0")
        answers.append(Answer(text, start))
    return Question(identity, location.text(fields, "question"), paragraph, tuple(answers))


def questions_about(pairs: Sequence[Tuple[str, ...]]) -> SquadSet:
    """Return questions without answers from pairs of a question and its context; their ids are their positions."""
    contexts = {context: number for number, context in enumerate(dict.fromkeys(context for _, context in pairs))}
    questions = [Question(str(n), text, contexts[context], ()) for n, (text, context) in enumerate(pairs)]
    return SquadSet([Paragraph("untitled", context) for context in contexts], questions, "the questions", "")


class _Location:
    """A location in a file: typed access to its fields, and errors that name it."""

    def __init__(self, origin: str, names: Tuple[str, ...]) -> None:
        self._origin = origin
        self._names = names

    @property
    def names(self) -> str:
        return ", ".join(self._names)

    def inside(self, name: str, entry: Any = None, label: str = "") -> _Location:
        """Return a location within this one, labelled with a field of its entry if that field is a text."""
        text = entry.get(label) if isinstance(entry, dict) else None
        return _Location(self._origin, (*self._names, f"{name} ({short(text)})" if isinstance(text, str) else name))

    def error(self, reason: str, fix: str) -> UserError:
        prefix = f"{self._origin}: {self.names}: " if self._names else f"{self._origin}: "
        return UserError(f"{prefix}{reason}; {fix}")

    def object(self, value: Any) -> Dict[str, Any]:
        if not isinstance(value, dict):
            raise self.error(f"is {short(value)}, not an object {{…}}", _FIX)
        return value

    def value(self, fields: Dict[str, Any], name: str, kind: type, default: Any = None) -> Any:
        value = fields.get(name, default)
        if value is None:
            raise self.error(f"{name} is missing", _FIX)
        if type(value) is not kind:
            raise self.error(f"{name} is {short(value)}, not {_KINDS[kind]}", _FIX)
        return value

    def items(self, fields: Dict[str, Any], name: str, default: Optional[List[Any]] = None) -> List[Any]:
        values: List[Any] = self.value(self.object(fields), name, list, default)
        return values

    def text(self, fields: Dict[str, Any], name: str, default: Optional[str] = None) -> str:
        text: str = self.value(fields, name, str, default)
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise self.error(f"{name} contains half a character (a lone surrogate)", "remove it") from None
        return text


_KINDS = {str: "a text", int: "a whole number", list: "a list"}
_FIX = "this is not the form of SQuAD 1.1: correct it, or download the file again"


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
