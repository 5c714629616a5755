"""Makes a shard's records from its text by tokenizing, pairing and masking, which depend only on the settings."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data_utils.records.features import MAX_SEQ_LENGTH
from data_utils.records.manifest import NEXT_SENTENCE, RANDOM_NEXT
from data_utils.records.writer import encode_examples
from data_utils.shards import Shard
from data_utils.text.masking import (
    SpecialIds,
    choose_tokens,
    choose_words,
    hide,
    lay_out,
    prediction_counts,
    predictions,
)
from data_utils.text.pairs import SPECIAL_IN_PAIR, SPECIAL_IN_SINGLE, cut_pairs, make_pairs, make_segments, pair_arrays
from data_utils.text.tokens import TokenizedText, tokenize_text
from data_utils.tokenizer import Vocabulary, make_tokenizer, read_vocabulary
from utilities.errors import UserError

MIN_SEQ_LENGTH = 8
COUNTS = ("documents", "sentences", "words", "tokens")
_DESCRIBED_IF_SET = ("validation_fraction", NEXT_SENTENCE)  # settings that data sets of earlier versions do not have


class Settings(NamedTuple):
    """The settings that determine the records, with text and vocabulary; the manifest lists them by these names."""

    max_seq_length: int = 128  # [CLS] and [SEP] included
    max_predictions_per_seq: int = 20
    masked_lm_prob: float = 0.15
    short_seq_prob: float = 0.1
    duplicate_factor: int = 5  # passes over the corpus, each with new pairs and masks
    whole_word_masking: bool = False
    seed: int = 42
    lower_case: bool = True
    validation_fraction: float = 0.0
    next_sentence: bool = True  # false: rows are single segments

    def described(self) -> dict[str, Any]:
        """Return the settings by name, without those of ``_DESCRIBED_IF_SET`` at their defaults."""
        return {
            name: value
            for name, value in self._asdict().items()
            if name not in _DESCRIBED_IF_SET or value != self._field_defaults[name]
        }


def use_one_tokenizer_thread() -> None:
    """Make tokenizers use one thread, because processes occupy all cores; must be called before their first use."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def check_settings(settings: Settings) -> None:
    """Reject settings that no record can satisfy."""
    length, most = settings.max_seq_length, settings.max_seq_length - SPECIAL_IN_PAIR
    if length < MIN_SEQ_LENGTH:
        raise UserError(f"--max-seq-length {length}: too short, at least {MIN_SEQ_LENGTH}")
    if length > MAX_SEQ_LENGTH:
        raise UserError(f"--max-seq-length {length}: too long, at most {MAX_SEQ_LENGTH}")
    if not 1 <= settings.max_predictions_per_seq <= most:
        raise UserError(
            f"--max-predictions {settings.max_predictions_per_seq}: must lie between 1 and {most},"
            f" the tokens of --max-seq-length {length} without [CLS] and two [SEP]"
        )
    if settings.validation_fraction == 1:
        raise UserError("--validation-fraction 1.0: leaves no documents for training; give less")
    if not 0 < settings.masked_lm_prob < 1:
        raise UserError(f"--masked-lm-prob {settings.masked_lm_prob}: must lie between 0 and 1")


def make_features(
    text: TokenizedText, vocabulary: Vocabulary, settings: Settings, shard_number: int, duplicate: int
) -> dict[str, np.ndarray]:
    """Make the rows and masks of one pass over a shard.

    Returns feature → (N, S), (N, P) or (N, 1), records in the text's order and features in a record's.
    """
    source = np.random.SeedSequence([settings.seed, shard_number, duplicate])
    rng = np.random.default_rng(source)
    pair_rng = random.Random(int(rng.integers(2**63)))
    bounds = (text.sentence_starts, text.document_starts, settings.max_seq_length, settings.short_seq_prob, pair_rng)
    if settings.next_sentence:
        pairs = pair_arrays(make_pairs(*bounds), text.sentence_starts)
        arrays, separators = cut_pairs(pairs, settings.max_seq_length - SPECIAL_IN_PAIR, rng), SPECIAL_IN_PAIR
    else:
        arrays, separators = make_segments(*bounds), SPECIAL_IN_SINGLE
    special, most = SpecialIds(*vocabulary.special_ids().tolist()), settings.max_predictions_per_seq
    sequences = lay_out(text.tokens, arrays, settings.max_seq_length, special)
    maskable = sequences.maskable & (sequences.input_ids != special.unk)  # there is no word to predict
    counts = prediction_counts(sequences.maskable, settings.masked_lm_prob, most, separators)
    counts = np.minimum(counts, maskable.sum(1))
    if settings.whole_word_masking:
        continues = vocabulary.continues_word()[sequences.input_ids]
        chosen = choose_words(maskable, continues, counts, rng)
    else:
        chosen = choose_tokens(maskable, counts, rng)
    return {
        "input_ids": hide(sequences.input_ids, chosen, special.mask, vocabulary.ordinary_ids(), rng),
        "input_mask": sequences.input_mask,
        "segment_ids": sequences.segment_ids,
        **predictions(sequences.input_ids, chosen, most),
        "next_sentence_labels": arrays.is_random[:, None],
    }


def make_shard(
    shard: Shard, vocabulary_file: Path, settings: Settings
) -> tuple[list[bytes], dict[str, int], np.ndarray]:
    """Make the records of a shard of sentences; the same shard, vocabulary and settings give the same ones.

    Returns:
        The records in random order, ``COUNTS`` of the text and ``RANDOM_NEXT`` in the records, and (V,) int64, how
        often each piece of the vocabulary occurs.
    """
    vocabulary = read_vocabulary(vocabulary_file)
    text = tokenize_text(shard.content, make_tokenizer(vocabulary, settings.lower_case))
    records: list[bytes] = []
    random_next = 0
    for duplicate in range(settings.duplicate_factor):
        features = make_features(text, vocabulary, settings, shard.number, duplicate)
        random_next += int(features["next_sentence_labels"].sum())
        records += encode_examples(features)
    random.Random(f"{settings.seed} {shard.number}").shuffle(records)
    counts = len(text.document_starts) - 1, len(text.sentence_starts) - 1, text.words, len(text.tokens)
    pieces = np.bincount(text.tokens, minlength=len(vocabulary.pieces))
    return records, {**dict(zip(COUNTS, counts)), RANDOM_NEXT: random_next}, pieces.astype(np.int64)
