"""A masked language model that answers: which word pieces fill the blanks of a text.

N samples · S tokens of a sample · P blanks of a sample · V vocabulary · K pieces for a blank
"""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Sequence

import numpy as np

from checkpoints.pretrained.pretrained import Pretrained
from checkpoints.pretrained.weights import TRANSFORM, WORD_BIAS
from data_utils.classification.features import text_features
from data_utils.records.arrays import ArrayReader
from data_utils.records.features import (
    SHORTEST_SAMPLE,
    TOKEN_POSITIONS,
    Feature,
    FeatureSpec,
    fine_tuning_features,
)
from data_utils.tokenizer import make_tokenizer
from data_utils.tokenizer_files import MASK, UNKNOWN
from execution.interface import Tensors
from keras_extensions.backend import tf
from model.architecture import Architecture
from model.blocks import Block, run_blocks
from model.tasks import PRETRAINING, TASKS
from tasks import prediction_config, restore_task
from training.initial_weights import TokenizerSettings, resolved_architecture, tokenizer_settings
from training.prediction import PredictorByLength
from utilities.errors import UserError

POSITIONS = "masked_lm_positions"
SHOWN = 5  # pieces for a blank


class Filling(NamedTuple):
    """A word piece for a blank of a text, whose blanks are numbered from 1, and its probability among all pieces."""

    blank: int
    piece: str
    probability: float


class MaskedWords:
    """A model with a masked-LM head.

    Attributes:
        tokenizer: finds [MASK] in texts.
        longest: positions of the model.
    """

    def __init__(self, settings: TokenizerSettings, architecture: Architecture, blocks: List[Block]) -> None:
        self.tokenizer = make_tokenizer(*settings, special_tokens=True)
        self.longest = architecture.max_position_embeddings
        self._settings, self._blocks, self._rows = settings, blocks, architecture.vocab_size
        self._candidates = tf.Variable(tf.zeros(self._rows, tf.bool), trainable=False)  # pieces that may fill a blank
        self._top = tf.Variable(SHOWN, trainable=False)

    def fillings(self, features: Tensors) -> Tensors:
        """Return the likeliest pieces for each blank, ``pieces`` int32 and ``probabilities`` float32, (N, P, K)."""
        shares = tf.nn.softmax(self._scores(features))
        top = tf.math.top_k(tf.where(self._candidates, shares, -1.0), self._top)
        return {"probabilities": top.values, "pieces": top.indices}

    def fill(
        self,
        predict: PredictorByLength,
        texts: Sequence[str],
        top: int = SHOWN,
        among: Optional[Sequence[str]] = None,
    ) -> List[List[Filling]]:
        """Return the fillings of each text, the likeliest first for each blank.

        Args:
            predict: the model, by way of :meth:`fillings`.
            texts: the texts, with [MASK] for each blank.
            top: number of pieces for each blank.
            among: the only words to consider; None: all pieces of the vocabulary.

        Raises:
            UserError: a text has no blank or is too long, or a word is not one piece of the vocabulary.
        """
        self._choose(top, among)
        inputs = text_features(self.tokenizer, [(text,) for text in texts], self.longest)
        if inputs.truncated:
            raise UserError(f"a text has more than the {self.longest} tokens that the model takes; shorten it")
        ids = inputs.arrays["input_ids"]
        blanks = [np.flatnonzero(row == self._settings.vocabulary.piece_id(MASK)).tolist() for row in ids]
        missing = next((text for text, found in zip(texts, blanks) if not found), None)
        if missing is not None:
            raise UserError(f"{missing!r} has no blank; write {MASK} in place of a word")
        positions = np.zeros((len(texts), max(map(len, blanks))), np.int32)
        for row, found in zip(positions, blanks):
            row[: len(found)] = found
        spec = self._features(self.longest, positions.shape[1])
        outputs = predict(ArrayReader(spec, {**inputs.arrays, POSITIONS: positions}), inputs.lengths)
        rows = zip(blanks, outputs["pieces"].tolist(), outputs["probabilities"].tolist())
        return [self._answer(len(found), pieces, shares) for found, pieces, shares in rows]

    def _choose(self, top: int, among: Optional[Sequence[str]]) -> None:
        """Choose how many pieces are shown, and which."""
        known = self._settings.vocabulary.pieces
        ids = list(range(len(known)))
        if among is not None:
            ids = []
            for word, encoding in zip(among, self.tokenizer.encode_batch(list(among), add_special_tokens=False)):
                if len(encoding.ids) != 1 or encoding.tokens == [UNKNOWN]:
                    shown = " ".join(encoding.tokens) or "nothing"
                    raise UserError(f"{word!r} is not one piece of the vocabulary, but {shown}; name another word")
                ids += encoding.ids
        candidates = np.zeros(self._rows, bool)
        candidates[ids] = True
        self._candidates.assign(candidates)
        self._top.assign(min(top, int(candidates.sum())))

    def _answer(self, blanks: int, pieces: List[List[int]], shares: List[List[float]]) -> List[Filling]:
        known = self._settings.vocabulary.pieces
        return [
            Filling(blank + 1, known[piece], share)
            for blank in range(blanks)
            for piece, share in zip(pieces[blank], shares[blank])
        ]

    def _scores(self, features: Tensors) -> tf.Tensor:
        """Return the scores of all pieces at the masked positions, (N, P, V)."""
        return run_blocks(self._blocks, features)["masked_lm"]

    def _features(self, longest: int, blanks: int, *more: Feature) -> FeatureSpec:
        return fine_tuning_features(longest, self._rows, Feature(POSITIONS, blanks, TOKEN_POSITIONS, longest), *more)


def restore_masked_words(start: Pretrained, key: str, vocab_file: Optional[str] = None) -> MaskedWords:
    """Return the model of a checkpoint that has a masked-LM head.

    Args:
        start: the checkpoint.
        key: what named it, for messages.
        vocab_file: its vocabulary; None: the one of the checkpoint.

    Raises:
        UserError: it has no masked-LM head, or no vocabulary.
    """
    transform = [f"{TRANSFORM}.{name}" for name in ("dense.weight", "dense.bias", "LayerNorm.weight", "LayerNorm.bias")]
    missing = {WORD_BIAS, *([] if start.own else transform)} - {*start.weights, *start.neutral_weights}
    if missing:
        fix = f"name a run of {TASKS[PRETRAINING].program}, a BertForPreTraining or a BertForMaskedLM"
        raise UserError(f"{key}: {start.origin} has no masked-LM head ({min(missing)} is missing); {fix}")
    config = prediction_config(
        vocab_file=vocab_file, max_seq_length=SHORTEST_SAMPLE, max_predictions_per_seq=1, use_next_sentence=False
    )
    architecture = resolved_architecture(config, start)
    settings = tokenizer_settings(config, architecture, start)
    return MaskedWords(settings, architecture, restore_task(start, PRETRAINING, config).built.blocks)
