"""Makes the model's inputs from tagged words, and scores predictions.

The first piece of a word gets the word's tag (Devlin et al. 2019, section 5.3).

N sentences · S max_seq_length
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import chain
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import numpy as np
from tokenizers import Tokenizer

from data_utils.classification.scoring import accuracy, f1
from data_utils.records.features import TAGS, Feature, FeatureSpec, fine_tuning_features
from data_utils.tagged_columns import ABSENT, OUTSIDE
from data_utils.tagged_sentences import CLUENER, COLUMNS, Sentences, are_entity_tags
from data_utils.tokenizer import with_marks
from data_utils.tokenizer_files import CLASSIFIER, PADDING, SEPARATOR, UNKNOWN
from utilities.metric_names import MACRO_F1

Entity = Tuple[str, int, int]  # type, first word, last word

_SAME_AS = {"M": "I", "L": "E", "U": "S"}  # BMES and BILOU in letters of BIOES


def token_features(max_seq_length: int, vocab_size: int, classes: int, labels: bool = True) -> FeatureSpec:
    """Return the features of sentences, with tags of ``classes`` kinds if ``labels`` is true."""
    tags = (Feature("labels", max_seq_length, TAGS, classes + 1),) if labels else ()
    return fine_tuning_features(max_seq_length, vocab_size, *tags)


class Encoded(NamedTuple):
    """Sentences as the model's inputs.

    Of each word that was kept, ``rows``, ``columns`` and ``words`` are its sentence, the column of its first piece, and
    its number.
    """

    arrays: Dict[str, np.ndarray]  # input_ids, input_mask, segment_ids, each int32 (N, S)
    rows: np.ndarray
    columns: np.ndarray
    words: np.ndarray
    truncated: int  # sentences that are longer than S
    truncated_words: int  # that do not fit
    unknown: float  # share of [UNK] among all pieces, 0 to 1

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
        """Return a tag for each word from predicted numbers ``(N, S)``.

        Words that were cut are ``O`` among tags of entities, and otherwise ``_``, which is no tag.
        """
        tags = [[OUTSIDE if are_entity_tags(names) else ABSENT] * len(words) for words in sentences]
        for row, column, word in zip(self.rows, self.columns, self.words):
            tags[row][word] = names[numbers[row, column]]
        return tags


def word_spans(tokenizer: Tokenizer, texts: Sequence[str]) -> List[List[Tuple[int, int]]]:
    """Return begin and end of each word of each text, in characters.

    BERT splits a text at white space and around punctuation and ideographs.
    """
    found = []
    for text, encoding in zip(texts, tokenizer.encode_batch(list(texts), add_special_tokens=False)):
        spans: Dict[int, Tuple[int, int]] = {}  # by the number of the word
        for word, (begin, end) in zip(encoding.word_ids, encoding.offsets):
            spans[word] = (spans.get(word, (begin, 0))[0], with_marks(text, end))
        found.append(list(spans.values()))
    return found


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
    rows, columns, numbers = np.array(kept, np.int64).reshape(-1, 3).T
    arrays = {"input_ids": ids, "input_mask": mask, "segment_ids": np.zeros(shape, np.int32)}
    share = float(np.sum(ids == unknown) / np.sum(mask))
    return Encoded(arrays, rows, columns, numbers, truncated, truncated_words, share)


def find_entities(tags: Sequence[str]) -> List[Entity]:
    """Return the entities of a sentence, as ``seqeval`` counts them in its default mode (that of ``conlleval``).

    Tags need not be well-formed; for example, an ``I-`` after ``O`` or after another type begins an entity. The schemes
    IOB1, IOB2, IOE, BIOES, BMES and BILOU are all understood. Tags without a type, such as ``B``, have the type ``_``.

    Example:
        >>> find_entities(["B-PER", "I-PER", "O", "I-LOC"])
        [('PER', 0, 1), ('LOC', 3, 3)]
    """
    entities: List[Entity] = []
    before, kind_before, begin = OUTSIDE, "", 0
    for position, tag in enumerate([*tags, OUTSIDE]):
        mark, kind = _SAME_AS.get(tag[0], tag[0]), tag[2:] or "_"
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


def word_scores(expected: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> Dict[str, Dict[str, float]]:
    """Return precision, recall, F1 and the number of words by tag; the tag ``""`` stands for the means over all tags.

    A word that was cut is a wrong one, but ``_`` is no tag of its own. The mean of F1 is ``macro_f1``. There is also
    the share of words that have the right tag, ``accuracy``.
    """
    gold, own = (np.array(list(chain.from_iterable(tags))) for tags in (expected, predicted))
    scores = {}
    for tag in sorted({*gold.tolist(), *own.tolist()} - ({ABSENT} - set(gold.tolist()))):
        right = float(np.sum((gold == tag) & (own == tag)))
        scores[tag] = {
            "precision": right / max(1, np.sum(own == tag)),
            "recall": right / max(1, np.sum(gold == tag)),
            "f1": f1(own == tag, gold == tag),
            "words": float(np.sum(gold == tag)),
        }
    means = {
        mean: float(np.mean([values[name] for values in scores.values()]))
        for name, mean in (("precision", "precision"), ("recall", "recall"), ("f1", MACRO_F1))
    }
    return {"": {**means, "accuracy": accuracy(own, gold), "words": float(len(gold))}, **scores}


def constant_tags(expected: Sequence[Sequence[str]]) -> List[List[str]]:
    """Return the most frequent tag for each word, the best guess without reading the words, as a baseline."""
    most = Counter(chain.from_iterable(expected)).most_common(1)
    return [[most[0][0]] * len(tags) for tags in expected]


def prediction_lines(sentences: Sentences, tags: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield predictions in the format that the data sets' own scorers read.

    CLUENER takes JSON lines with ``id`` and ``label``, Hugging Face ``tokens`` and ``ner_tags``, annotation tools
    ``text`` and ``labels``. ``conlleval`` takes a line for each word with the expected tag, if there is one, and the
    predicted one, and an empty line after each sentence; tabs are between them if words have blanks.
    """
    separator = "\t" if any(" " in word for words in sentences.words for word in words) else " "
    for number, (words, predicted) in enumerate(zip(sentences.words, tags)):
        if sentences.form == COLUMNS:
            columns = [words, predicted] if sentences.tags is None else [words, sentences.tags[number], predicted]
            yield from (separator.join(row) for row in zip(*columns))
            yield ""
            continue
        row: Dict[str, Any] = {"id": sentences.ids[number]}
        if sentences.form == CLUENER:
            label: Dict[str, Dict[str, List[List[int]]]] = {}
            for kind, first, last in find_entities(predicted):
                label.setdefault(kind, {}).setdefault("".join(words[first : last + 1]), []).append([first, last])
            row["label"] = label
        elif sentences.texts is not None:
            row["text"], places = sentences.texts[number]
            entities = find_entities(predicted)
            row["labels"] = [[places[first][0], places[last][1], kind] for kind, first, last in entities]
        else:
            row.update(tokens=words, ner_tags=predicted)
        yield json.dumps(row, ensure_ascii=False)
