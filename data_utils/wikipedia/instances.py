"""Work units to records: settings, tokenizing, pairing and masking, as pure functions.

``make_unit`` takes a work unit and gives bytes: any scheduler may run it, anywhere, in any order.
"""

from __future__ import annotations

import functools
import random
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data_utils.records_writer import EncodedFile, encode_examples, frame_records
from data_utils.tokenizer import Vocabulary, load_tokenizer, read_vocabulary
from data_utils.wikipedia.masking import (
    SpecialIds,
    choose_tokens,
    choose_words,
    hide,
    lay_out,
    prediction_counts,
    predictions,
)
from data_utils.wikipedia.pairs import make_pairs, pair_arrays
from data_utils.wikipedia.units import Unit
from utilities.errors import UserError

FEATURE_ORDER = (
    "input_ids",
    "input_mask",
    "segment_ids",
    "masked_lm_positions",
    "masked_lm_ids",
    "masked_lm_weights",
    "next_sentence_labels",
)
TOKENIZE_AT_ONCE = 4096  # sentences


class Settings(NamedTuple):
    """What decides the records, beside text and vocabulary; written to the manifest under these names.

    Attributes:
        max_seq_length: tokens of a sequence, [CLS] and [SEP] included.
        max_predictions_per_seq: masked positions of a sequence, at most.
        masked_lm_prob: share of tokens to predict.
        short_seq_prob: how often a shorter sequence is made.
        duplicate_factor: how often the corpus is gone through, each time paired and masked anew.
        whole_word_masking: all pieces of a word are masked, or none.
        seed: of all chance.
        lower_case: whether the vocabulary is an uncased one.
    """

    max_seq_length: int = 128
    max_predictions_per_seq: int = 20
    masked_lm_prob: float = 0.15
    short_seq_prob: float = 0.1
    duplicate_factor: int = 5
    whole_word_masking: bool = False
    seed: int = 42
    lower_case: bool = True


class UnitCounts(NamedTuple):
    """Counts of a unit's text, each document once, whatever the duplicate factor."""

    documents: int
    sentences: int
    words: int
    tokens: int


class UnitResult(NamedTuple):
    """A unit's TFRecord file in memory.

    Attributes:
        encoded: bytes and index.
        counts: of the text.
        pieces: (V,) how often each piece of the vocabulary occurs in the text.
    """

    encoded: EncodedFile
    counts: UnitCounts
    pieces: np.ndarray


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


@functools.lru_cache(maxsize=2)
def _vocabulary(path: str) -> Vocabulary:
    return read_vocabulary(Path(path))


def check_settings(settings: Settings) -> None:
    """Refuses settings that no record can satisfy.

    Raises:
        UserError: names the setting and the limit.
    """
    if settings.max_seq_length < 8:
        raise UserError(f"--max-seq-length {settings.max_seq_length}: too short, at least 8")
    most = settings.max_seq_length - 3
    if not 1 <= settings.max_predictions_per_seq <= most:
        raise UserError(
            f"--max-predictions {settings.max_predictions_per_seq}: must lie between 1 and {most},"
            f" the tokens of --max-seq-length {settings.max_seq_length} without [CLS] and two [SEP]"
        )
    if not 0 < settings.masked_lm_prob < 1:
        raise UserError(f"--masked-lm-prob {settings.masked_lm_prob}: must lie between 0 and 1")


def tokenize_unit(documents: list[list[str]], vocabulary_file: str, lower_case: bool) -> TokenizedUnit:
    """Tokenizes documents; sentences without any token, and documents left empty, disappear."""
    tokenizer = load_tokenizer(vocabulary_file, lower_case)
    sentences = [sentence for document in documents for sentence in document]
    ids: list[list[int]] = []
    for start in range(0, len(sentences), TOKENIZE_AT_ONCE):
        chunk = sentences[start : start + TOKENIZE_AT_ONCE]
        ids += [encoding.ids for encoding in tokenizer.encode_batch_fast(chunk, add_special_tokens=False)]
    lengths = np.fromiter(map(len, ids), np.int64, len(ids))
    owners = np.repeat(np.arange(len(documents)), [len(document) for document in documents])
    kept = lengths > 0
    tokens = np.fromiter((token for sentence in ids for token in sentence), np.int32, int(lengths.sum()))
    sentence_starts = [0, *np.cumsum(lengths[kept]).tolist()]
    _, per_document = np.unique(owners[kept], return_counts=True)
    words = sum(len(sentence.split()) for sentence in sentences)
    return TokenizedUnit(tokens, sentence_starts, [0, *np.cumsum(per_document).tolist()], words)


def make_features(
    text: TokenizedUnit, vocabulary: Vocabulary, settings: Settings, unit_number: int, duplicate: int
) -> dict[str, np.ndarray]:
    """One pass over a unit: pairs, masks, and the features of its records, in the order of the text.

    Returns:
        Feature name → (N, S), (N, P) or (N, 1) array; names as in ``FEATURE_ORDER``.
    """
    source = np.random.SeedSequence([settings.seed, unit_number, duplicate])
    rng = np.random.default_rng(source)
    chance = random.Random(int(rng.integers(2**63)))
    pairs = make_pairs(
        text.sentence_starts, text.document_starts, settings.max_seq_length, settings.short_seq_prob, chance
    )
    arrays = pair_arrays(pairs)
    special_ids = vocabulary.special_ids()
    special = SpecialIds(*special_ids.tolist())
    sequences = lay_out(text.tokens, arrays, settings.max_seq_length, special)
    counts = prediction_counts(sequences.maskable, settings.masked_lm_prob, settings.max_predictions_per_seq)
    if settings.whole_word_masking:
        continues = vocabulary.continues_word()[sequences.input_ids]
        chosen = choose_words(sequences.maskable, continues, counts, rng)
    else:
        chosen = choose_tokens(sequences.maskable, counts, rng)
    ordinary = np.setdiff1d(np.arange(len(vocabulary.pieces)), special_ids)
    return {
        "input_ids": hide(sequences.input_ids, chosen, special.mask, ordinary, rng),
        "input_mask": sequences.input_mask,
        "segment_ids": sequences.segment_ids,
        **predictions(sequences.input_ids, chosen, settings.max_predictions_per_seq),
        "next_sentence_labels": arrays.is_random[:, None],
    }


def make_unit(unit: Unit, vocabulary_file: str, settings: Settings) -> UnitResult:
    """A work unit as the bytes of a TFRecord file, its records shuffled.

    Same unit, vocabulary and settings: same bytes, wherever and whenever it runs.
    """
    vocabulary = _vocabulary(vocabulary_file)
    documents = unit.read_documents()
    text = tokenize_unit(documents, vocabulary_file, settings.lower_case)
    messages: list[bytes] = []
    for duplicate in range(settings.duplicate_factor):
        features = make_features(text, vocabulary, settings, unit.number, duplicate)
        messages += encode_examples({name: features[name] for name in FEATURE_ORDER})
    shuffle = np.random.default_rng([settings.seed, unit.number, settings.duplicate_factor])
    order = shuffle.permutation(len(messages)).tolist()
    counts = UnitCounts(len(text.document_starts) - 1, len(text.sentence_starts) - 1, text.words, len(text.tokens))
    pieces = np.bincount(text.tokens, minlength=len(vocabulary.pieces))
    return UnitResult(frame_records(messages[number] for number in order), counts, pieces)
