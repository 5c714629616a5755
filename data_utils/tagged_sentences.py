"""Reads tagged words from files in columns, tables, and the JSON of CLUENER, Hugging Face and annotation tools.

Tags are those of the files. Tags of entities, such as ``B-PER I-PER O``, say where an entity begins and ends; others,
such as ``NOUN``, each stand for one word.
"""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from data_utils.tagged_columns import ENTITY_TAG, OUTSIDE, column_sentences, words_of_columns
from data_utils.tagged_spans import SPAN_FIELDS, Place, Span, Tagged, bert_words, has_spans, marked_text, tagged
from utilities.errors import UserError
from utilities.tables import REPAIR, Line, json_values, listed, read_table, short

TRAIN, VALIDATION, TEST = "train", "validation", "test"
FILES: Mapping[str, Tuple[str, ...]] = {  # the first that exists is read
    TRAIN: ("train.txt", "eng.train", "train.json", "train.jsonl", "train.csv", "train.tsv"),
    VALIDATION: (
        *("valid.txt", "dev.txt", "eng.testa", "dev.json", "dev.jsonl", "validation.json", "validation.jsonl"),
        *("valid.json", "valid.jsonl", "valid.csv", "valid.tsv", "dev.csv", "dev.tsv"),
    ),
    TEST: ("test.txt", "eng.testb", "test.json", "test.jsonl", "test.csv", "test.tsv"),
}
# The forms of files: TOKENS is Hugging Face's, SPANS that of annotation tools, by character.
COLUMNS, CLUENER, TOKENS, SPANS = "columns", "cluener", "tokens", "spans"
TAG_COLUMN = "token_data.tag_column"
TOKEN_FIELDS, TAG_FIELDS = ("tokens", "words"), ("ner_tags", "tags", "labels", "pos_tags")
WORD_COLUMNS, TAG_COLUMNS = ("word", "token", "words", "tokens"), ("tag", "ner_tag", "ner", "label", "tags", "labels")
SENTENCE_COLUMNS = ("sentence #", "sentence", "sentence_id", "sentence_idx", "sent_id")
_BRACKET_TAG = re.compile(r"\([\w-]+\*?\)?|\*\)")  # (DATE* and *) around an entity of several words
_MARK_AT_END = re.compile(r"(.{2,})[-_]([BIESMLU])")  # PER-B; B-I may be either
_IDEOGRAPH = re.compile("[\u3400-\u9fff\uf900-\ufaff]")


class Sentences(NamedTuple):
    words: List[List[str]]  # in CLUENER, characters
    tags: Optional[List[List[str]]]  # of each word; None if the file has none
    ids: List[Any]  # in the file, or positions
    origin: str
    notes: Sequence[str] = ()  # what was left out or changed, with counts
    form: str = COLUMNS
    texts: Optional[List[Tuple[str, List[Place]]]] = None  # with begin and end of each word; None if the file has words


def sentences_file(dataset_dir: Optional[str], split: str) -> Path:
    """Return the file of a split; there must be one."""
    if dataset_dir is None:
        raise UserError("dataset_dir is not set; set it to the folder of train.txt, valid.txt and test.txt")
    paths = [Path(dataset_dir) / name for name in FILES[split]]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise UserError(f"dataset_dir: {dataset_dir} has no {' or '.join(FILES[split])}; copy the {split} data there")
    return path


def read_sentences(
    dataset_dir: Optional[str], split: str, word_column: Optional[int] = None, tag_column: Optional[int] = None
) -> Sentences:
    """Read a split from one of ``FILES``; columns are counted from 1, None: the first and the last."""
    path = sentences_file(dataset_dir, split)
    has_columns = path.suffix not in (".json", ".jsonl", ".csv", ".tsv")
    if split == TRAIN and not has_columns and (word_column, tag_column) != (None, None):
        what = f"{TAG_COLUMN} and word_column count the columns of a .txt file, not those of {path.name}"
        raise UserError(f"{path}: {what}; leave them out")
    if path.suffix in (".json", ".jsonl"):
        sentences = _from_json(path)
    elif path.suffix in (".csv", ".tsv"):
        sentences = _from_table(path)
    else:
        sentences = _from_columns(path, split == TEST, word_column, tag_column)
    if not any(sentences.words):
        raise UserError(f"{path}: contains no sentences; write a word and its tag on each line, or name another folder")
    if split != TEST and sentences.tags is None:
        raise UserError(f"{path}: contains no tags; add them, as {', '.join(TAG_FIELDS)} or {', '.join(SPAN_FIELDS)}")
    names = set(chain.from_iterable(sentences.tags or ()))
    is_one = names == {OUTSIDE} or (len(names) == 1 and not are_entity_tags(names))
    bracket = next((name for name in names if _BRACKET_TAG.fullmatch(name)), None)
    if bracket is not None:
        fix = "write B-, I- and O" + f", or name another column with {TAG_COLUMN}" * has_columns
        raise UserError(f"{path}: the tag {short(bracket)} is in the brackets of CoNLL-2012, which are not read; {fix}")
    if split == TRAIN and (is_one or ("_" in names and tag_column is None)):
        what = f"all words have the tag {short(*names)}" if is_one else "words have the tag _, no value"
        fix = f"name the column of tags with {TAG_COLUMN}" if has_columns else "give the words their tags"
        raise UserError(f"{path}: {what}; {fix}")
    return sentences


def are_entity_tags(names: Iterable[str]) -> bool:
    """Return whether tags say where entities begin and end: ``O``, and ``B-…`` or another letter of a scheme."""
    return all(ENTITY_TAG.fullmatch(name) for name in names)


def _from_columns(path: Path, is_test: bool, word_column: Optional[int], tag_column: Optional[int]) -> Sentences:
    """Read a word and its tag from each line; a test file may have no tags."""
    sentences = [[line for line in sentence if line.columns] for sentence in column_sentences(path, word_column)]
    sentences = list(filter(None, sentences))
    least = max(2, word_column or 1, tag_column or 1)
    notes: List[str] = []
    words = [words_of_columns(sentence, word_column) for sentence in sentences]
    tags: Optional[List[List[str]]] = None
    if not is_test or any(len(line.columns) >= least for line in chain.from_iterable(sentences)):
        broken = next((line for line in chain.from_iterable(sentences) if len(line.columns) < least), None)
        if broken is not None:
            lacking = "does not end with a tag such as O or B-PER"
            if tag_column is not None:
                lacking = f"has {len(broken.columns)} columns, not the tag_column {tag_column}"
            raise UserError(f"{path}: line {broken.number}: {lacking}; {REPAIR}")
        tags = [[line.columns[(tag_column or 0) - 1] for line in sentence] for sentence in sentences]
        tags, notes = _told_as_usual(path, tags, (line.number for line in chain.from_iterable(sentences)))
    other = [sentence[0] for sentence in sentences if len(sentence[0].columns) != len(sentences[0][0].columns)]
    if other and word_column is None and tag_column is None:
        what = f"{len(other):,} sentences have another number of columns than the first one"
        notes.append(f"{what} (line {other[0].number} first); the first and the last column are read")
    return Sentences(words, tags, list(range(len(words))), str(path), notes)


def usual_tags(names: Iterable[str]) -> Dict[str, str]:
    """Return the usual form of entities' tags that are written as ``b-PER`` and ``o``, or as ``PER-B`` and ``O``.

    It is empty unless all are tags of entities then.
    """
    names = set(names)
    capitals = {name: name[:1].upper() + name[1:] for name in names}
    turned = {name: _MARK_AT_END.sub(r"\2-\1", name) for name in names}
    has_marks = OUTSIDE.lower() in names or any(name[1:2] in ("-", "_") for name in names)
    if are_entity_tags(names):
        return {}
    if has_marks and are_entity_tags(capitals.values()):
        return capitals
    return turned if OUTSIDE in names and are_entity_tags(turned.values()) else {}


def as_usual(names: Sequence[str]) -> List[str]:
    """Return tags, those of entities in their usual form; see :func:`usual_tags`."""
    usual = usual_tags(names)
    return [usual.get(name, name) for name in names]


def _told_as_usual(path: Path, tags: List[List[str]], lines: Iterable[int]) -> Tuple[List[List[str]], List[str]]:
    """Return tags as :func:`usual_tags` has them, and a note if that changes them.

    If one of them is an entity's with a type, all must be tags of entities; ``lines`` has the number of each tag's.
    """
    usual = usual_tags(chain.from_iterable(tags))
    if usual:
        changed = sorted(name for name, other in usual.items() if name != other)
        note = f"the tags {listed(changed)} are read as {listed(usual[name] for name in changed)}"
        return [[usual[tag] for tag in sentence] for sentence in tags], [note]
    if any("-" in name and ENTITY_TAG.fullmatch(name) for name in set(chain.from_iterable(tags))):
        for line, tag in zip(lines, chain.from_iterable(tags)):
            if not ENTITY_TAG.fullmatch(tag):
                what = f"{short(tag)} is not a tag such as O or B-PER, as the others are"
                raise UserError(f"{path}: line {line}: {what}; {REPAIR}")
    return tags, []


def _from_table(path: Path) -> Sentences:
    """Read a word from each row, as in Kaggle's table, where a new value in the first column begins a sentence."""
    first = next(iter(read_table(path)), None)
    names = {name.strip().lower(): name for name in (first.row if first is not None else ())}
    word, tag, sentence = (
        next((names[name] for name in known if name in names), None)
        for known in (WORD_COLUMNS, TAG_COLUMNS, SENTENCE_COLUMNS)
    )
    if word is None or sentence is None:
        needed = f"{', '.join(SENTENCE_COLUMNS)} and one of {', '.join(WORD_COLUMNS)}"
        raise UserError(f"{path}: has the columns {listed(names.values())}; it needs one of {needed}")
    words: List[List[str]] = []
    tags: List[List[str]] = []
    present: Any = None
    lines = []
    for number, row in read_table(path):
        mark = row[sentence].strip()
        if not words or (mark and mark != present):
            words.append([])
            tags.append([])
            present = mark
        words[-1].append(row[word])
        tags[-1].append(row[tag].strip() if tag is not None else OUTSIDE)
        lines.append(number)
    empty = [line for line, each in zip(lines, chain.from_iterable(tags)) if not each]
    if 0 < len(empty) < len(lines):
        raise UserError(f"{path}: line {empty[0]}: {tag} is empty; {REPAIR}")
    tags, notes = _told_as_usual(path, tags, lines)
    return Sentences(words, tags if tag is not None else None, list(range(len(words))), str(path), notes, TOKENS)


def _from_json(path: Path) -> Sentences:
    """Read a sentence from each line or element, in the form of CLUENER, Hugging Face or an annotation tool."""
    rows = [Line(number, _as_object(path, number, value)) for number, value in json_values(path)]
    first = rows[0].row if rows else {}
    lists = [name for name in TOKEN_FIELDS if isinstance(first.get(name), list)]
    field = next((name for name in lists if not any(isinstance(word, dict) for word in first[name])), None)
    if field is not None:
        return _from_tokens(path, rows, field)
    texts = [row.get("text") for _, row in rows]
    no_labels = not any("label" in row for _, row in rows)
    is_latin = not any(isinstance(text, str) and _IDEOGRAPH.search(text) for text in texts)
    if any(has_spans(row) for _, row in rows) or (
        rows and no_labels and is_latin and all(isinstance(text, str) for text in texts)
    ):
        return _from_marked(path, rows)
    return _from_spans(path, rows)


def _as_object(path: Path, number: int, value: Any) -> Mapping[str, Any]:
    """Return a row; spaCy's training data are pairs of a text and an object with its entities."""
    if isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], dict):
        return {"text": value[0], **value[1]}
    if not isinstance(value, dict):
        raise UserError(f"{path}: line {number}: is {short(value)}, not an object {{…}}; {REPAIR}")
    return value


def _from_marked(path: Path, rows: Sequence[Line]) -> Sentences:
    marked = [marked_text(path, number, row) for number, row in rows]
    unmarked = sum(each.spans is None for each in marked)
    has_tags = unmarked < len(marked)
    kept = [number for number, each in enumerate(marked) if each.spans is not None or not has_tags]
    texts = [(marked[number].text, bert_words(marked[number].text)) for number in kept]
    found = [tagged(marked[number].spans or (), places) for number, (_, places) in zip(kept, texts)]
    counts = (
        (unmarked if has_tags else 0, "texts that nobody has marked, or accepted, are left out"),
        (sum(each.others for each in marked), "annotations of texts that have another one before are left out"),
        (sum(each.overlapping for each in found), "entities overlap an earlier one and are left out"),
        (sum(each.widened for each in found), "entities begin or end within a word, and are taken to its end"),
    )
    return Sentences(
        [[text[begin:end] for begin, end in places] for text, places in texts],
        [each.tags for each in found] if has_tags else None,
        [rows[number].row.get("id", number) for number in kept],
        str(path),
        [f"{count:,} {what}" for count, what in counts if count],
        SPANS,
        texts,
    )


def _from_tokens(path: Path, rows: Sequence[Line], field: str) -> Sentences:
    words: List[List[str]] = []
    tags: List[List[str]] = []
    tag_field = next((name for name in TAG_FIELDS if name in rows[0].row), None)
    for number, row in rows:
        for name, texts in ((field, words), (tag_field, tags)):
            values = row.get(name) if name is not None else []
            if not isinstance(values, list) or not all(isinstance(value, str) and value for value in values):
                fix = f'write {{"{field}": ["EU", "acts"], "{tag_field or TAG_FIELDS[0]}": ["B-ORG", "O"]}}'
                if isinstance(values, list) and all(type(value) is int for value in values):
                    fix = "write the names of the tags, which the file does not have"
                raise UserError(f"{path}: line {number}: {name} is {short(values)}, not a list of texts; {fix}")
            texts.append(values)
        if tag_field is not None and len(words[-1]) != len(tags[-1]):
            counts = f"has {len(words[-1])} {field} and {len(tags[-1])} {tag_field}"
            raise UserError(f"{path}: line {number}: {counts}; {REPAIR}")
    tags, notes = _told_as_usual(path, tags, (line.number for line, each in zip(rows, tags) for _ in each))
    ids = [row.get("id", position) for position, (_, row) in enumerate(rows)]
    return Sentences(words, tags if tag_field is not None else None, ids, str(path), notes, TOKENS)


def _from_spans(path: Path, rows: Sequence[Line]) -> Sentences:
    """Read a text and its entities from each line, as tags ``B-…`` and ``I-…`` of the characters."""
    found: List[Tagged] = []
    for number, row in rows:
        try:
            text, spans = row["text"], list(_spans(row.get("label") or {}))
            if not (isinstance(text, str) and text and all(0 <= span.begin < span.end <= len(text) for span in spans)):
                raise ValueError
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            form = '{"text": …, "label": {type: {entity: [[first, last]]}}} with positions in the text'
            raise UserError(f"{path}: line {number}: is not {form}; {REPAIR}") from error
        for begin, end, _, entity in spans:
            if text[begin:end] != entity:
                what = f"positions {begin} to {end - 1}, both included, are {short(text[begin:end])}"
                raise UserError(f"{path}: line {number}: {what}, not {short(entity)}; {REPAIR}")
        found.append(tagged(spans, [(place, place + 1) for place in range(len(text))]))
    words = [list(row["text"]) for _, row in rows]
    tags = [each.tags for each in found] if all("label" in row for _, row in rows) else None
    ids = [row.get("id", position) for position, (_, row) in enumerate(rows)]
    overlapping = sum(each.overlapping for each in found)
    notes = [f"{overlapping:,} entities overlap an earlier one and are left out"] if overlapping else []
    return Sentences(words, tags, ids, str(path), notes, CLUENER)


def _spans(label: Mapping[str, Mapping[str, Sequence[Sequence[int]]]]) -> Iterator[Span]:
    for kind, entities in label.items():
        for entity, positions in entities.items():
            for first, last in positions:
                if not kind or type(first) is not int or type(last) is not int:
                    raise ValueError
                yield Span(first, last + 1, kind, entity)
