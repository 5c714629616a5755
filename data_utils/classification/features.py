"""Makes model inputs of texts: [CLS] a [SEP] or [CLS] a [SEP] b [SEP], padded to one length.

N samples · K texts of a sample · S max_seq_length
"""

from __future__ import annotations

import logging
from itertools import chain
from typing import Dict, List, NamedTuple, Sequence, Tuple

import numpy as np
from tokenizers import Tokenizer

from data_utils.records.features import LABEL, SCORE, Feature, FeatureSpec, fine_tuning_features
from data_utils.tokenizer_files import CLASSIFIER, PADDING, SEPARATOR, UNKNOWN

logger = logging.getLogger(__name__)

CHUNK = 8192  # Limits the memory of encodings.
MANY_UNKNOWN = 0.1  # share of [UNK] above which the vocabulary is probably of another language


class Features(NamedTuple):
    """Inputs of the model, and how much of the texts was lost."""

    arrays: Dict[str, np.ndarray]  # input_ids, input_mask, segment_ids, each int32 (N, S)
    truncated: int  # samples that were longer than S
    unknown: float  # share of [UNK] among all pieces, 0 to 1

    @property
    def lengths(self) -> np.ndarray:
        """``(N,)`` tokens of each sample."""
        return self.arrays["input_mask"].sum(axis=1)


def classification_features(
    max_seq_length: int,
    vocab_size: int,
    classes: int,
    labels: bool = True,
    multi_label: bool = False,
    more: Sequence[Feature] = (),
) -> FeatureSpec:
    """Return the features of a task's samples.

    Args:
        classes: number of the classes or labels; 1 for a regression.
        labels: False for prediction, which also leaves out ``more`` features.
        multi_label: whether a sample has any number of the labels.
    """
    label = Feature("labels", 1, SCORE) if classes == 1 else Feature("labels", 1, LABEL, classes)
    if multi_label:
        label = Feature("labels", classes, LABEL, 2)
    return fine_tuning_features(max_seq_length, vocab_size, *((label, *more) if labels else ()))


def text_features(
    tokenizer: Tokenizer, texts: Sequence[Tuple[str, ...]], max_seq_length: int, separate: bool = False
) -> Features:
    """Tokenise samples and truncate the longest text of a sample first (Devlin et al.'s ``run_classifier``).

    Args:
        separate: whether each text is a row of its own, [CLS] a [SEP], so that there are N·K rows. All texts of a
            sample together still have at most S tokens.
    """
    count = len(texts[0]) if separate else 1  # rows of a sample
    shape = (len(texts) * count, max_seq_length)
    arrays = {name: np.zeros(shape, np.int32) for name in ("input_ids", "input_mask", "segment_ids")}
    truncated = unknown = 0
    for begin in range(0, len(texts), CHUNK):
        chunk = texts[begin : begin + CHUNK]
        columns = [_encoded(tokenizer, [text[column] for text in chunk]) for column in range(len(chunk[0]))]
        lengths = np.array([[len(ids) for ids in column] for column in columns]).T  # (n, K)
        kept = kept_lengths(lengths, max_seq_length - count - len(columns))
        truncated += int(np.sum(lengths.sum(axis=1) > kept.sum(axis=1)))
        if separate:
            columns, kept = [list(chain.from_iterable(zip(*columns)))], kept.reshape(-1, 1)
        rows = _joined(tokenizer, columns, kept)
        for name, values in _padded(rows, kept, max_seq_length, tokenizer.token_to_id(PADDING)).items():
            arrays[name][begin * count : (begin + CHUNK) * count] = values
        unknown += sum(row.count(tokenizer.token_to_id(UNKNOWN)) for row in rows)
    return Features(arrays, truncated, unknown / int(arrays["input_mask"].sum()))


def _encoded(tokenizer: Tokenizer, texts: List[str]) -> List[List[int]]:
    return [encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]


def kept_lengths(lengths: np.ndarray, limit: int) -> np.ndarray:
    """Return how many pieces of each text, of ``lengths`` (N, K), are kept: at most ``limit`` of a sample.

    They are removed one by one from the end of its longest text, or of the last one of equally long texts.

    Example:
        >>> kept_lengths(np.array([[9, 2], [9, 8], [3, 9]]), limit=7).tolist()
        [[5, 2], [4, 3], [3, 4]]
    """
    ascending = np.sort(lengths, axis=1)
    shorter = np.cumsum(ascending, axis=1) - ascending  # (N, K) pieces of all shorter texts
    # The length to which all longer texts are truncated; the remainder of the limit is one piece for some of them.
    level = ((limit - shorter) // np.arange(lengths.shape[1], 0, -1)).max(axis=1, keepdims=True)
    kept, is_cut = np.minimum(lengths, level), lengths > level
    spare = limit - kept.sum(axis=1, keepdims=True)
    return kept + (is_cut & (np.cumsum(is_cut, axis=1) <= spare))


def _joined(tokenizer: Tokenizer, columns: List[List[List[int]]], kept: np.ndarray) -> List[List[int]]:
    begin, end = [tokenizer.token_to_id(CLASSIFIER)], [tokenizer.token_to_id(SEPARATOR)]
    if len(columns) == 1:
        return [begin + ids[:length] + end for ids, (length,) in zip(columns[0], kept.tolist())]
    pairs = zip(columns[0], columns[1], kept.tolist())
    return [begin + first[:a] + end + second[:b] + end for first, second, (a, b) in pairs]


def _padded(rows: List[List[int]], kept: np.ndarray, max_seq_length: int, padding: int) -> Dict[str, np.ndarray]:
    """Return rows of ids as arrays of one width, with mask and segments."""
    lengths = np.array([len(row) for row in rows])[:, None]  # (N, 1)
    columns = np.arange(max_seq_length)
    mask = columns < lengths  # (N, S)
    ids = np.full(mask.shape, padding, np.int32)
    ids[mask] = np.fromiter(chain.from_iterable(rows), np.int32, int(lengths.sum()))
    second = mask & (columns >= kept[:, :1] + 2)  # after [CLS] a [SEP]
    return {"input_ids": ids, "input_mask": mask.astype(np.int32), "segment_ids": second.astype(np.int32)}


def cut_line(origin: str, samples: int, cut: int, max_seq_length: int, lost_words: int = 0) -> str:
    """Return the line that says how many samples were cut, and how many of their words are lost, if that is known."""
    many = f"{cut:,} of {samples:,} samples ({cut / samples:.1%}) " if samples > 1 else ""
    verb = "are" if samples > 1 and cut != 1 else "is"
    lost = f"; {lost_words:,} words are lost" if lost_words else ""
    return f"{origin}: {many}{verb} longer than max_seq_length {max_seq_length} and cut{lost}"


def report_truncation(origin: str, samples: int, features: Features, max_seq_length: int) -> None:
    """Log how many samples were cut, and warn if the vocabulary does not fit the text."""
    if features.truncated:
        logger.warning(cut_line(origin, samples, features.truncated, max_seq_length))
    if features.unknown > MANY_UNKNOWN:
        share = f"{features.unknown:.0%}"
        logger.warning("%s: %s of the pieces are unknown; is the vocabulary of this language?", origin, share)
