"""Reads entities that are marked as spans of characters, in the JSON of doccano, spaCy, Prodigy and Label Studio.

A text is split into words as BERT splits it, and a word is of an entity if it shares a character with it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from tokenizers import PreTokenizedString
from tokenizers.pre_tokenizers import BertPreTokenizer

from data_utils.tagged_columns import OUTSIDE
from data_utils.tokenizer import bert_normalizer
from utilities.errors import UserError
from utilities.tables import REPAIR, short

SPAN_FIELDS = ("labels", "label", "entities", "spans", "ents")
_BEGINS, _ENDS, _KINDS = ("start", "start_offset", "begin"), ("end", "end_offset"), ("label", "labels", "type")
_NOT_ACCEPTED = ("reject", "ignore")  # what Prodigy's annotators answer to a text that is marked wrongly
_FORM = '{"text": "EU acts", "labels": [[0, 2, "ORG"]]} with begin and end in the text'

Place = Tuple[int, int]  # begin and end, in characters


class Span(NamedTuple):
    """An entity: its begin and end in the text, its kind, and its text if that is given."""

    begin: int
    end: int
    kind: str
    text: Any = None


class Marked(NamedTuple):
    """A text and its entities; ``spans`` is None if nobody has marked them, and ``others`` counts other annotations."""

    text: str
    spans: Optional[List[Span]]
    others: int = 0


class Tagged(NamedTuple):
    tags: List[str]  # of each word
    overlapping: int  # entities that are left out because they overlap an earlier one, or contain no word
    widened: int  # entities that begin or end within a word, which is taken as a whole


def has_spans(row: Mapping[str, Any]) -> bool:
    """Return whether a row has entities in one of these forms; those of CLUENER are an object by kind."""
    return _is_label_studio(row) or any(isinstance(row.get(name), list) for name in SPAN_FIELDS)


def marked_text(path: Path, number: int, row: Mapping[str, Any]) -> Marked:
    try:
        marked = _label_studio(row) if _is_label_studio(row) else _flat(row)
        if not isinstance(marked.text, str) or not marked.text.strip():
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration, IndexError) as error:
        raise UserError(f"{path}: line {number}: is not {_FORM}; {REPAIR}") from error
    for begin, end, kind, words in marked.spans or ():
        found = marked.text[max(0, begin) : end]
        if not 0 <= begin < end <= len(marked.text) or words not in (None, found):
            what = f"{short(kind)} from {begin} to {end} is {short(found)}"
            what += "" if words is None else f", not {short(words)}"
            fix = "count characters from 0, the end not included"
            raise UserError(f"{path}: line {number}: {what}, in a text of {len(marked.text)} characters; {fix}")
    return marked


def _is_label_studio(row: Mapping[str, Any]) -> bool:
    return isinstance(row.get("data"), dict) and isinstance(row.get("annotations", row.get("completions")), list)


def _label_studio(row: Mapping[str, Any]) -> Marked:
    data = row["data"]
    text = data["text"] if "text" in data else next(value for value in data.values() if isinstance(value, str))
    made = [each for each in row.get("annotations", row.get("completions")) if not each.get("was_cancelled")]
    if not made:
        return Marked(text, None)
    values = [each.get("value", {}) for each in made[0]["result"]]
    return Marked(text, [_span(each) for each in values if "labels" in each], len(made) - 1)  # others are no spans


def _flat(row: Mapping[str, Any]) -> Marked:
    is_accepted = row.get("answer") not in _NOT_ACCEPTED
    name = next((name for name in SPAN_FIELDS if is_accepted and isinstance(row.get(name), list)), None)
    return Marked(row["text"], None if name is None else [_span(each) for each in row[name]])


def _span(given: Any) -> Span:
    """Return a span from ``[0, 2, "ORG"]`` or from an object."""
    if isinstance(given, dict):
        begin, end, kind = (_first(given, keys) for keys in (_BEGINS, _ENDS, _KINDS))
        kind = kind[0] if isinstance(kind, list) else kind
        words = given.get("text")
    else:
        (begin, end, kind), words = given, None
    if type(begin) is not int or type(end) is not int or not isinstance(kind, str) or not kind.strip():
        raise ValueError
    return Span(begin, end, kind.strip(), words if isinstance(words, str) else None)


def _first(given: Mapping[str, Any], keys: Sequence[str]) -> Any:
    """Return the value of the first of some keys that there is; raise ``KeyError`` if there is none."""
    return given[next((key for key in keys if key in given), keys[0])]


def bert_words(text: str) -> List[Place]:
    """Return begin and end of each word of a text, as every BERT splits it: "Toyota", "(" and "豊" of "Toyota (豊"."""
    parts = PreTokenizedString(text)
    parts.normalize(bert_normalizer(lower_case=False).normalize)
    BertPreTokenizer().pre_tokenize(parts)
    return [place for _, place, _ in parts.get_splits("original", "char")]


def tagged(spans: Sequence[Span], places: Sequence[Place]) -> Tagged:
    """Return the tags of the words at these places; an entity that overlaps an earlier one is left out."""
    tags, overlapping, widened = [OUTSIDE] * len(places), 0, 0
    for begin, end, kind, _ in sorted(spans, key=lambda span: (span.begin, -span.end)):
        words = [number for number, (first, last) in enumerate(places) if first < end and last > begin]
        if not words or any(tags[number] != OUTSIDE for number in words):
            overlapping += 1
            continue
        widened += begin > places[words[0]][0] or end < places[words[-1]][1]
        for number in words:
            tags[number] = f"{'B' if number == words[0] else 'I'}-{kind}"
    return Tagged(tags, overlapping, widened)
