"""Reads named entities from CoNLL's column files and CLUENER's JSON lines, makes model inputs, and scores predictions.

Tags are those of the files, such as ``B-PER I-PER O``. The first piece of a word gets the word's tag (Devlin et al.
2019, section 5.3).

N sentences · S max_seq_length
"""

from __future__ import annotations

import json
import re
from itertools import chain
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np
from tokenizers import Tokenizer

from data_utils.records.features import TAGS, Feature, FeatureSpec, fine_tuning_features
from data_utils.tokenizer import CLASSIFIER, PADDING, SEPARATOR, UNKNOWN
from utilities.errors import UserError
from utilities.tables import json_rows, read_lines

TRAIN, VALIDATION, TEST = "train", "validation", "test"
FILES: Mapping[str, Tuple[str, ...]] = {  # the first that exists is read
    TRAIN: ("train.txt", "eng.train", "train.json"),
    VALIDATION: ("valid.txt", "dev.txt", "eng.testa", "dev.json"),
    TEST: ("test.txt", "eng.testb", "test.json"),
}
OUTSIDE = "O"
_DOCUMENT = "-DOCSTART-"
_FIX = "correct it there, or copy the data set's own file again"

Entity = Tuple[str, int, int]  # type, first word, last word


class Sentences(NamedTuple):
    """The sentences of a split.

    Attributes:
        words: words of each sentence; in CLUENER, its characters.
        tags: tag of each word; None if the file has none.
        ids: the sentences' ids in the file, or their positions.
        origin: the file.
        overlapping: number of entities that are left out because they overlap an earlier one.
    """

    words: List[List[str]]
    tags: Optional[List[List[str]]]
    ids: List[Any]
    origin: str
    overlapping: int = 0

    @property
    def is_cluener(self) -> bool:
        return self.origin.endswith(".json")


def read_sentences(dataset_dir: str, split: str) -> Sentences:
    """Read a split from one of ``FILES``: CoNLL's columns, or CLUENER's ``.json``.

    Raises:
        UserError: there is no such file, or one of its lines cannot be used; the message names file, line and fix.
    """
    paths = [Path(dataset_dir) / name for name in FILES[split]]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise UserError(f"dataset_dir: {dataset_dir} has no {' or '.join(FILES[split])}; copy the {split} data there")
    sentences = _from_json(path) if path.suffix == ".json" else _from_columns(path)
    if not sentences.words:
        raise UserError(f"{path}: contains no sentences; copy the data set's own file again")
    if split != TEST and sentences.tags is None:
        raise UserError(f"{path}: contains no tags; copy the data set's own file again")
    return sentences


def _from_columns(path: Path) -> Sentences:
    """Read a word and its tag, the last column, from each line; an empty line ends a sentence."""
    sentences = list(filter(None, map(_word_columns, column_sentences(path, tagged=True))))
    words = [[columns[0] for columns in sentence] for sentence in sentences]
    tags = [[columns[-1] for columns in sentence] for sentence in sentences]
    return Sentences(words, tags, list(range(len(words))), str(path))


def _columns(line: str) -> List[str]:
    """Return the columns of a line; the first is empty if the line is."""
    return re.split(r"[ \t]+", line.strip(" \t\r\n"))  # other white space may be a word


def column_sentences(path: Path, tagged: bool = False) -> Iterator[List[str]]:
    """Yield the lines of each sentence of a file in CoNLL's columns, with the line that ends it.

    Args:
        path: the file.
        tagged: whether the last column must be a tag.

    Raises:
        UserError: the file cannot be read, a tag is missing, or lines of a sentence have different numbers of columns.
    """
    sentence: List[str] = []
    width = 0
    for number, line in enumerate(read_lines(path), 1):
        sentence.append(line.rstrip("\r\n"))
        columns = _columns(line)
        if columns[0] in ("", _DOCUMENT):
            yield sentence
            sentence, width = [], 0
            continue
        if tagged and (len(columns) < 2 or not _is_tag(columns[-1])):
            raise UserError(f"{path}: line {number}: does not end with a tag such as O or B-PER; {_FIX}")
        width = width or len(columns)
        if len(columns) != width:
            raise UserError(f"{path}: line {number}: has {len(columns)} columns, the words before it {width}; {_FIX}")
    if sentence:
        yield sentence


def words_of_columns(sentence: Sequence[str]) -> List[str]:
    """Return the words of the lines of a sentence."""
    return [columns[0] for columns in _word_columns(sentence)]


def _word_columns(sentence: Sequence[str]) -> List[List[str]]:
    """Return the columns of the lines of a sentence that have a word."""
    return [columns for columns in map(_columns, sentence) if columns[0] not in ("", _DOCUMENT)]


def tagged_columns(sentence: Sequence[str], tags: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a sentence with the tags of its words as one more column, for ``conlleval``.

    Example:
        >>> list(tagged_columns(["EU NNP", "rejects VBZ", ""], ["B-ORG", "O"]))
        ['EU NNP B-ORG', 'rejects VBZ O', '']
    """
    remaining = iter(tags)
    for line in sentence:
        first = _columns(line)[0]
        if not first:
            yield ""
            continue
        tag = OUTSIDE if first == _DOCUMENT else next(remaining)
        separator = "\t" if "\t" in line else " "
        yield line.rstrip(" \t\r") + separator + tag


def _is_tag(text: str) -> bool:
    return text == OUTSIDE or (text[:1] in "BIES" and text[1:2] == "-" and len(text) > 2)


def _from_json(path: Path) -> Sentences:
    """Read a text and its entities from each line, as tags ``B-…`` and ``I-…`` of the characters."""
    words: List[List[str]] = []
    tags: List[List[str]] = []
    ids: List[Any] = []
    overlapping = unlabelled = 0
    for number, row in json_rows(path):
        assert row is not None, "only broken lines have no row"
        try:
            text, spans = row["text"], list(_spans(row.get("label") or {}))
            if not (isinstance(text, str) and text and all(0 <= first <= last < len(text) for _, first, last in spans)):
                raise ValueError
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            form = '{"text": …, "label": {type: {entity: [[first, last]]}}} with positions in the text'
            raise UserError(f"{path}: line {number}: is not {form}; {_FIX}") from error
        unlabelled += "label" not in row
        tagged = [OUTSIDE] * len(text)
        for kind, first, last in sorted(spans, key=lambda span: (span[1], -span[2])):
            if any(tag != OUTSIDE for tag in tagged[first : last + 1]):
                overlapping += 1
                continue
            tagged[first : last + 1] = [f"B-{kind}", *[f"I-{kind}"] * (last - first)]
        words.append(list(text))
        tags.append(tagged)
        ids.append(row.get("id", len(ids)))
    return Sentences(words, tags if not unlabelled else None, ids, str(path), overlapping)


def _spans(label: Mapping[str, Mapping[str, Sequence[Sequence[int]]]]) -> Iterator[Entity]:
    for kind, entities in label.items():
        for positions in entities.values():
            for first, last in positions:
                if not kind or type(first) is not int or type(last) is not int:
                    raise ValueError
                yield kind, first, last


def token_features(max_seq_length: int, vocab_size: int, classes: int, labels: bool = True) -> FeatureSpec:
    """Return the features of sentences, with tags of ``classes`` kinds if ``labels`` is true."""
    tags = (Feature("labels", max_seq_length, TAGS, classes + 1),) if labels else ()
    return fine_tuning_features(max_seq_length, vocab_size, *tags)


class Encoded(NamedTuple):
    """Sentences as the model's inputs.

    Attributes:
        arrays: ``input_ids``, ``input_mask``, ``segment_ids``, each int32 ``(N, S)``.
        rows, columns, words: sentence, column of the first piece, and number of each word that was kept.
        truncated: number of sentences that are longer than S.
        truncated_words: number of words that do not fit.
        unknown: share of [UNK] among all pieces, 0 to 1.
    """

    arrays: Dict[str, np.ndarray]
    rows: np.ndarray
    columns: np.ndarray
    words: np.ndarray
    truncated: int
    truncated_words: int
    unknown: float

    @property
    def lengths(self) -> np.ndarray:
        """``(N,)`` tokens of each sentence."""
        return self.arrays["input_mask"].sum(axis=1)

    def labels(self, tags: Sequence[Sequence[str]], names: Sequence[str]) -> np.ndarray:
        """Return int32 ``(N, S)``: for the first piece of each word 1 + the number of its tag, 0 for all others."""
        numbers = {name: number for number, name in enumerate(names, 1)}
        labels = np.zeros_like(self.arrays["input_ids"])
        labels[self.rows, self.columns] = [numbers[tags[row][word]] for row, word in zip(self.rows, self.words)]
        return labels

    def tags(self, numbers: np.ndarray, names: Sequence[str], sentences: Sequence[Sequence[str]]) -> List[List[str]]:
        """Return a tag for each word from predicted numbers ``(N, S)``; words that were cut are ``O``."""
        tags = [[OUTSIDE] * len(words) for words in sentences]
        for row, column, word in zip(self.rows, self.columns, self.words):
            tags[row][word] = names[numbers[row, column]]
        return tags


def encode_words(tokenizer: Tokenizer, sentences: Sequence[Sequence[str]], max_seq_length: int) -> Encoded:
    """Tokenise words and put the pieces of each sentence between [CLS] and [SEP]; the rest of a long one is cut."""
    known = sorted(set(chain.from_iterable(sentences)))
    unknown = tokenizer.token_to_id(UNKNOWN)
    encodings = tokenizer.encode_batch_fast(known, add_special_tokens=False)
    pieces = {word: encoding.ids or [unknown] for word, encoding in zip(known, encodings)}
    shape = (len(sentences), max_seq_length)
    ids = np.full(shape, tokenizer.token_to_id(PADDING), np.int32)
    ids[:, 0] = tokenizer.token_to_id(CLASSIFIER)
    mask = np.zeros(shape, np.int32)
    kept: List[Tuple[int, int, int]] = []
    truncated = truncated_words = 0
    for row, words in enumerate(sentences):
        column = 1
        for number, word in enumerate(words):
            if column >= max_seq_length - 1:
                truncated_words += len(words) - number
                break
            kept.append((row, column, number))
            fitting = pieces[word][: max_seq_length - 1 - column]
            ids[row, column : column + len(fitting)] = fitting
            column += len(fitting)
        truncated += sum(len(pieces[word]) for word in words) > max_seq_length - 2
        ids[row, column] = tokenizer.token_to_id(SEPARATOR)
        mask[row, : column + 1] = 1
    rows, columns, numbers = np.array(kept, np.int64).T
    arrays = {"input_ids": ids, "input_mask": mask, "segment_ids": np.zeros(shape, np.int32)}
    share = float(np.sum(ids == unknown) / np.sum(mask))
    return Encoded(arrays, rows, columns, numbers, truncated, truncated_words, share)


def find_entities(tags: Sequence[str]) -> List[Entity]:
    """Return the entities of a sentence, as ``seqeval`` counts them in its default mode (that of ``conlleval``).

    Tags need not be well-formed; for example, an ``I-`` after ``O`` or after another type begins an entity. The schemes
    IOB1, IOB2, IOE and BIOES are all understood.

    Example:
        >>> find_entities(["B-PER", "I-PER", "O", "I-LOC"])
        [('PER', 0, 1), ('LOC', 3, 3)]
    """
    entities: List[Entity] = []
    before, kind_before, begin = OUTSIDE, "", 0
    for position, tag in enumerate([*tags, OUTSIDE]):
        mark, kind = tag[0], tag[2:]
        other = kind != kind_before
        if before != OUTSIDE and (before in "ES" or mark in "BSO" or other):
            entities.append((kind_before, begin, position - 1))
        if mark in "BS" or (mark != OUTSIDE and (before in "ESO" or other)):
            begin = position
        before, kind_before = mark, kind
    return entities


def entity_scores(expected: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> Dict[str, Dict[str, float]]:
    """Return precision, recall, F1 and the number of expected entities by type; the type ``""`` stands for all.

    An entity counts only if type, first and last word are right.
    """
    pairs = [(set(find_entities(gold)), set(find_entities(own))) for gold, own in zip(expected, predicted)]
    kinds = sorted({kind for gold, own in pairs for kind, _, _ in gold | own})
    scores = {}
    for kind in ("", *kinds):
        counts = np.zeros(3)  # right, predicted, expected
        for gold, own in pairs:
            counts += [sum(kind in ("", entity[0]) for entity in part) for part in (gold & own, own, gold)]
        right, predictions, all_expected = counts.tolist()
        scores[kind] = {
            "precision": right / predictions if predictions else 0.0,
            "recall": right / all_expected if all_expected else 0.0,
            "f1": 2 * right / (predictions + all_expected) if right else 0.0,
            "entities": all_expected,
        }
    return scores


def prediction_lines(sentences: Sentences, tags: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield predictions in the format that the data sets' own scorers read.

    CLUENER takes JSON lines with ``id`` and ``label``; ``conlleval`` takes a line for each word with the expected tag,
    if there is one, and the predicted one, and an empty line after each sentence.
    """
    for number, (words, predicted) in enumerate(zip(sentences.words, tags)):
        if sentences.is_cluener:
            label: Dict[str, Dict[str, List[List[int]]]] = {}
            for kind, first, last in find_entities(predicted):
                label.setdefault(kind, {}).setdefault("".join(words[first : last + 1]), []).append([first, last])
            yield json.dumps({"id": sentences.ids[number], "label": label}, ensure_ascii=False)
            continue
        columns = [words, predicted] if sentences.tags is None else [words, sentences.tags[number], predicted]
        yield from (" ".join(row) for row in zip(*columns))
        yield ""
