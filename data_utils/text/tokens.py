"""Tokenizes sentences into word pieces, each distinct word only once.

Text repeats its words, so a dictionary saves most of the tokenizer's work. BERT's tokenizer splits at blanks and at
ASCII punctuation anyway, so the result is the same as for whole sentences. With added tokens that contain such marks,
whole sentences are tokenized.

Shapes: T tokens, N lines or words.
"""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

import numpy as np
from tokenizers import Tokenizer

# Frequent after or before a word; splitting them off leaves fewer distinct words.
SET_APART = (b",", b".", b"(", b")", b'"', b":", b";")


class TokenizedText(NamedTuple):
    """A shard's text as one token array."""

    tokens: np.ndarray  # (T,) int32
    sentence_starts: list[int]  # first token of each sentence, and T
    document_starts: list[int]  # first sentence of each document, and the number of sentences
    words: int  # separated by white space


def tokenize_text(text: bytes, tokenizer: Tokenizer) -> TokenizedText:
    """Tokenize UTF-8 sentences, one a line, of documents with a blank line between; empty ones are left out."""
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n")
    characters = np.frombuffer(text, np.uint8)
    is_blank = characters <= ord(" ")
    words = int(np.count_nonzero(~is_blank[1:] & is_blank[:-1])) + bool(text and not is_blank[0])
    line_ends = np.flatnonzero(characters == ord("\n"))
    is_empty = np.diff(line_ends, prepend=-1) == 1
    tokens, lengths = tokenize_lines(text, tokenizer)
    document = np.append(np.cumsum(is_empty), is_empty.sum())  # (N,) end of each line; the last one has none
    kept = lengths > 0
    sentence_starts = [0, *np.cumsum(lengths[kept]).tolist()]
    _, per_document = np.unique(document[kept], return_counts=True)
    return TokenizedText(tokens, sentence_starts, [0, *np.cumsum(per_document).tolist()], words)


def tokenize_lines(text: bytes, tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of all lines of a text, (T,) int32 without [CLS] and [SEP], and their number in each, (N,)."""
    if _has_tokens_of_several_words(tokenizer):
        encodings = tokenizer.encode_batch(text.decode().split("\n"), add_special_tokens=False)
        lines = [encoding.ids for encoding in encodings]
        return np.array(list(chain.from_iterable(lines)), np.int32), np.array([len(line) for line in lines])
    for mark in SET_APART:
        text = text.replace(mark, b" " + mark + b" ")
    characters = np.frombuffer(text, np.uint8)
    line_ends = np.flatnonzero(characters == ord("\n"))
    word_ends = np.flatnonzero((characters == ord("\n")) | (characters == ord(" ")))
    words = text.replace(b"\n", b" ").split(b" ")
    words_before_end = np.searchsorted(word_ends, line_ends) + 1
    distinct = list(dict.fromkeys(words))  # in the order of their first occurrence
    number_by_word = dict(zip(distinct, range(len(distinct))))
    numbers = np.fromiter(map(number_by_word.__getitem__, words), np.int64, len(words))
    texts = [word.decode("utf-8") for word in distinct]
    encoding = tokenizer.encode(texts, is_pretokenized=True, add_special_tokens=False)
    lengths = np.bincount(np.array(encoding.word_ids, np.int64), minlength=len(distinct))  # of each distinct word
    per_word = lengths[numbers]
    begins = (np.cumsum(lengths) - lengths)[numbers]  # of each word in the ids of the distinct ones
    ends = np.cumsum(per_word)
    tokens = np.array(encoding.ids, np.int32)[np.repeat(begins - ends + per_word, per_word) + np.arange(per_word.sum())]
    bounds = np.concatenate([[0], ends])[[0, *words_before_end.tolist(), len(words)]]
    return tokens, np.diff(bounds)


def _has_tokens_of_several_words(tokenizer: Tokenizer) -> bool:
    """Return whether an added token is not within one of the words into which lines are split here."""
    apart = [" ", *(mark.decode() for mark in SET_APART)]
    tokens = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    forms = [*tokens, *(tokenizer.normalizer.normalize_str(token) for token in tokens)]
    return any(mark in form for form in forms for mark in apart)
