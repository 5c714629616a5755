"""Pseudo-log-likelihoods of sentences (Salazar et al. 2020, arXiv 1910.14659, equation 1)."""

from __future__ import annotations

from typing import Dict, Sequence

import numpy as np

from data_utils.records.features import TARGETS, Feature, FeatureSpec
from data_utils.tokenizer_files import CLASSIFIER, MASK, PADDING, SEPARATOR
from execution.interface import Tensors, cross_entropy
from tasks.masked_words import POSITIONS, MaskedWords
from training.prediction import PredictorByLength

PIECES = "masked_lm_ids"


def log_likelihoods(model: MaskedWords, sentences: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the pseudo-log-likelihood of each sentence, (N,) float64, in nats.

    A sentence is the ids of its word pieces, without special tokens.
    """
    vocabulary = model.settings.vocabulary
    spec = model.features(max(map(len, sentences)) + 2, 1, Feature(PIECES, 1, TARGETS, len(vocabulary.pieces)))
    special = [vocabulary.piece_id(token) for token in (PADDING, CLASSIFIER, SEPARATOR, MASK)]
    pieces = MaskedPieces(spec, special, sentences)

    def log_probabilities(features: Tensors) -> Tensors:
        return {"score": -cross_entropy(model.scores(features), features[PIECES])}  # (N, 1)

    with PredictorByLength(log_probabilities).call(pieces.count, "scored", "word pieces") as call:
        scores = call(pieces, pieces.lengths)["score"][:, 0]
    return np.bincount(pieces.owners, scores, len(sentences))


class MaskedPieces:
    """Reads sentences with one masked word piece each, so that a sentence is read as often as it has pieces.

    The ``spec`` has as many tokens as the longest sentence at least; ``owners`` and ``lengths``, ``(count,)``, are the
    sentence and the tokens of each row.
    """

    def __init__(self, spec: FeatureSpec, special: Sequence[int], sentences: Sequence[Sequence[int]]) -> None:
        self.spec = spec
        self._special = special
        sizes = np.array([len(sentence) for sentence in sentences])
        self._ids = np.full((len(sentences), spec.features[0].length), special[0], np.int32)
        _, first, last, _ = special
        for row, sentence in zip(self._ids, sentences):
            row[: len(sentence) + 2] = [first, *sentence, last]
        self.owners = np.repeat(np.arange(len(sentences)), sizes)
        self.lengths = sizes[self.owners] + 2
        starts = np.cumsum(sizes) - sizes
        self._positions = (np.arange(len(self.owners)) - starts[self.owners] + 1).astype(np.int32)

    @property
    def count(self) -> int:
        return len(self.owners)

    def read(self, positions: np.ndarray) -> Dict[str, np.ndarray]:
        """Return the rows at these positions."""
        rows, places = self._ids[self.owners[positions]], self._positions[positions, None]
        pieces = np.take_along_axis(rows, places, axis=1)
        np.put_along_axis(rows, places, self._special[3], axis=1)
        real = (np.arange(rows.shape[1]) < self.lengths[positions, None]).astype(np.int32)
        masked = {POSITIONS: places, PIECES: pieces}
        return {"input_ids": rows, "input_mask": real, "segment_ids": np.zeros_like(rows), **masked}
