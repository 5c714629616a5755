"""Sentences to word pieces, each different word once.

Running text repeats its words, so a dictionary spares the tokenizer most of its work. BERT's tokenizer treats what
stands between two blanks on its own, and ASCII punctuation as words, so the result is that of whole sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from tokenizers import Tokenizer

from data_utils.tokenizer import load_tokenizer
from data_utils.wikipedia.ragged import starts_of, take_rows

SET_APART = ',.()":;'  # frequent behind or before a word: without them there are fewer different words
SEPARATORS = "|~^`"  # one of them stands between words that are tokenised together
WORDS_AT_ONCE = 500


class TokenizedUnit(NamedTuple):
    """A unit's text as one token array.

    Attributes:
        tokens: (T,) int32 ids.
        sentence_starts: first token of each sentence, and T.
        document_starts: first sentence of each document, and the number of sentences.
        words: white-space separated words of the text.
    """

    tokens: np.ndarray
    sentence_starts: list[int]
    document_starts: list[int]
    words: int


def tokenize_unit(documents: list[list[str]], vocabulary_file: str, lower_case: bool) -> TokenizedUnit:
    """Tokenizes documents; sentences without any token, and documents left empty, disappear."""
    sentences = [sentence for document in documents for sentence in document]
    tokens, lengths = tokenize_sentences(sentences, load_tokenizer(vocabulary_file, lower_case))
    owners = np.repeat(np.arange(len(documents)), [len(document) for document in documents])
    kept = lengths > 0
    sentence_starts = [0, *np.cumsum(lengths[kept]).tolist()]
    _, per_document = np.unique(owners[kept], return_counts=True)
    words = sum(len(sentence.split()) for sentence in sentences)
    return TokenizedUnit(tokens, sentence_starts, [0, *np.cumsum(per_document).tolist()], words)


def tokenize_sentences(sentences: Sequence[str], tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """Ids of sentences, without [CLS] and [SEP].

    Args:
        sentences: without line ends.
        tokenizer: of ``data_utils.tokenizer``.

    Returns:
        (T,) int32 ids of all sentences, and (N,) how many each has.
    """
    text = "\n".join(sentences)
    for mark in SET_APART:
        text = text.replace(mark, f" {mark} ")
    lines = text.split("\n")
    words = text.replace("\n", " ").split(" ")
    numbers_of = dict.fromkeys(words)  # different words in the order of their first place
    different = list(numbers_of)
    numbers_of = dict(zip(different, range(len(different))))
    numbers = np.fromiter(map(numbers_of.__getitem__, words), np.int64, len(words))
    ids, lengths = tokenize_words(different, tokenizer)
    per_word = lengths[numbers]
    tokens = take_rows(ids, starts_of(lengths)[numbers], per_word)
    words_of_line = np.fromiter((line.count(" ") + 1 for line in lines), np.int64, len(lines))
    bounds = np.concatenate([[0], np.cumsum(per_word)])[np.concatenate([[0], np.cumsum(words_of_line)])]
    return tokens, np.diff(bounds) if sentences else np.empty(0, np.int64)


def tokenize_words(words: Sequence[str], tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """Ids of words, many of them in one text of the tokenizer, which takes long to begin and end one.

    Returns:
        (T,) int32 ids of all words, and (N,) how many each has.
    """
    separator, separator_id = _separator(tokenizer)
    if separator_id is None:
        together, alone = [], range(len(words))
    else:
        together = [number for number, word in enumerate(words) if separator not in word]
        alone = [number for number, word in enumerate(words) if separator in word]
    chunks = [together[start : start + WORDS_AT_ONCE] for start in range(0, len(together), WORDS_AT_ONCE)]
    glue = f" {separator} "
    texts = [glue.join(words[number] for number in chunk) + glue for chunk in chunks] + [words[n] for n in alone]
    encoded = [encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    flat = np.fromiter((token for ids in encoded[: len(chunks)] for token in ids), np.int32)
    ends = np.flatnonzero(flat == separator_id) if chunks else np.empty(0, np.int64)
    assert ends.size == len(together), "each word is followed by one separator"
    lengths = np.zeros(len(words), np.int64)
    lengths[together] = np.diff(ends, prepend=-1) - 1
    lengths[list(alone)] = [len(ids) for ids in encoded[len(chunks) :]]
    order = np.argsort(np.array([*together, *alone], np.int64), kind="stable")
    grouped = np.concatenate(
        [flat[flat != separator_id] if chunks else flat, *(np.array(ids, np.int32) for ids in encoded[len(chunks) :])]
    ).astype(np.int32)
    grouped_lengths = lengths[np.array([*together, *alone], np.int64)]
    return take_rows(grouped, starts_of(grouped_lengths)[order], grouped_lengths[order]), lengths


def _separator(tokenizer: Tokenizer) -> tuple[str, int | None]:
    """A mark that the vocabulary has as a word, and its id; None where it has none of them."""
    for mark in SEPARATORS:
        number = tokenizer.token_to_id(mark)
        if number is not None:
            return mark, number
    return SEPARATORS[0], None
