"""A masked language model that answers: which word pieces fill the blanks of a text.

N samples · S tokens of a sample · P blanks of a sample · V vocabulary · K pieces for a blank
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from checkpoints.pretrained.pretrained import Pretrained, longest_text
from data_utils.classification.features import text_features
from data_utils.records.arrays import ArrayReader
from data_utils.records.features import SHORTEST_SAMPLE, TOKEN_POSITIONS, Feature, FeatureSpec, fine_tuning_features
from data_utils.tokenizer import CONTINUATION, make_tokenizer
from data_utils.tokenizer_files import MASK, UNKNOWN
from execution.interface import Tensors
from keras_extensions.backend import tf
from model.blocks import Block, run_blocks
from model.tasks import PRETRAINING
from tasks import prediction_config, restore_task
from tasks.answers import Answer
from tasks.file_predictions import FILLINGS, FLOAT32
from tasks.fine_tuning import TokenizerSettings, tokenizer_settings
from tasks.named_models import MASKED_LM_FIX
from training.initial_weights import resolved_architecture
from training.prediction import PredictorByLength, PredictorCall
from utilities.errors import UserError
from utilities.files import is_unicode
from utilities.tables import short

POSITIONS = "masked_lm_positions"


class Filling(NamedTuple):
    """A word piece for a blank of a text, whose blanks are numbered from 1, and its probability.

    The probabilities of all pieces add up to 1 or, if only some words are considered, those of these words.
    """

    blank: int
    piece: str
    probability: float


class MaskedWords:
    """A model with a masked-LM head."""

    name = PRETRAINING

    def __init__(self, settings: TokenizerSettings, longest: int, rows: int, blocks: List[Block]) -> None:
        self.tokenizer = make_tokenizer(*settings, special_tokens=True)
        self.settings, self.longest, self._rows, self._blocks = settings, longest, rows, blocks

    def check_texts(self, given: int) -> None:
        if given != 1:
            raise UserError(f"blanks are filled in 1 text, not {given}; quote each text")

    def predictor(self) -> PredictorByLength:
        """Return the computation of :meth:`fillings`."""
        options = {"competing": tf.bool, "candidates": tf.bool}
        masks = {name: tf.TensorSpec((self._rows,), dtype) for name, dtype in options.items()}
        return PredictorByLength(self.fillings, **masks, top=tf.TensorSpec((), tf.int32))

    def report_cut(self, origin: str, call: PredictorCall) -> None:
        """Do nothing: a text that is too long is refused."""

    def fillings(self, features: Tensors, competing: tf.Tensor, candidates: tf.Tensor, top: tf.Tensor) -> Tensors:
        """Return the likeliest pieces for each blank, ``pieces`` int32 and ``probabilities`` float32, (N, P, K).

        The pieces ``competing``, ``(V,)`` bool, have probabilities that add up to 1; ``candidates``, ``(V,)`` bool, may
        fill a blank; ``top`` is K.
        """
        scores = self.scores(features)
        shares = tf.nn.softmax(tf.where(competing, scores, scores.dtype.min))
        best = tf.math.top_k(tf.where(candidates, shares, -1.0), top)
        return {"probabilities": best.values, "pieces": best.indices}

    def answers(
        self,
        predict: PredictorCall,
        texts: Sequence[Tuple[str, ...]],
        top: int = FILLINGS,
        among: Optional[Sequence[str]] = None,
    ) -> List[Answer]:
        """Return the fillings of each text, the likeliest first for each blank.

        Args:
            among: the only words to consider, among which the probabilities are; None: all pieces of the vocabulary.
        """
        options = self._options(top, among)
        inputs = text_features(self.tokenizer, texts, self.longest)
        if inputs.truncated:
            counts = (len(self.tokenizer.encode(text, add_special_tokens=False).ids) + 2 for (text,) in texts)
            text = next(text for (text,), count in zip(texts, counts) if count > self.longest)
            raise UserError(f"{short(text)} has more than the {self.longest} tokens that the model takes; shorten it")
        ids = inputs.arrays["input_ids"]
        blanks = [np.flatnonzero(row == self.settings.vocabulary.piece_id(MASK)).tolist() for row in ids]
        missing = next((text for (text,), found in zip(texts, blanks) if not found), None)
        if missing is not None:
            raise UserError(f"{short(missing)} has no blank; write {MASK} in place of a word")
        positions = np.zeros((len(texts), max(map(len, blanks))), np.int32)
        for row, found in zip(positions, blanks):
            row[: len(found)] = found
        spec = self.features(self.longest, positions.shape[1])
        outputs = predict(ArrayReader(spec, {**inputs.arrays, POSITIONS: positions}), inputs.lengths, **options)
        rows = zip(blanks, outputs["pieces"].tolist(), outputs["probabilities"].tolist())
        return [self._answer(len(found), pieces, shares) for found, pieces, shares in rows]

    def _options(self, top: int, among: Optional[Sequence[str]]) -> Dict[str, Any]:
        """Return how many pieces are shown, and which, as :meth:`fillings` takes it."""
        if isinstance(top, bool) or not isinstance(top, (int, np.integer)) or top < 1:
            raise UserError(f"top is {top!r}; set it to a whole number, 1 or more")
        ids = list(range(len(self.settings.vocabulary.pieces)))
        if among is not None:
            are_words = not isinstance(among, str) and all(isinstance(word, str) and is_unicode(word) for word in among)
            if not among or not are_words:
                raise UserError(f'among is {among!r}; give a list of words, such as ["good", "bad"]')
            ids = []
            for word, encoding in zip(among, self.tokenizer.encode_batch(list(among), add_special_tokens=False)):
                if word.startswith(CONTINUATION) and word in self.settings.vocabulary.pieces:  # as it is shown
                    ids.append(self.settings.vocabulary.piece_id(word))
                    continue
                if len(encoding.ids) != 1 or encoding.tokens == [UNKNOWN]:
                    shown = " ".join(encoding.tokens) or "nothing"
                    raise UserError(f"{word!r} is not one piece of the vocabulary, but {shown}; name another word")
                ids += encoding.ids
        candidates = np.zeros(self._rows, bool)
        candidates[ids] = True
        competing = np.ones(self._rows, bool) if among is None else candidates
        return {"competing": competing, "candidates": candidates, "top": min(top, int(candidates.sum()))}

    def _answer(self, blanks: int, pieces: List[List[int]], shares: List[List[float]]) -> Answer:
        known = self.settings.vocabulary.pieces
        return Answer(
            Filling(blank + 1, known[piece], share)
            for blank in range(blanks)
            for piece, share in zip(pieces[blank], shares[blank])
        )

    def scores(self, features: Tensors) -> tf.Tensor:
        """Return the scores of all pieces at the masked positions, (N, P, V)."""
        return run_blocks(self._blocks, features)["masked_lm"]

    def features(self, longest: int, blanks: int, *more: Feature) -> FeatureSpec:
        return fine_tuning_features(longest, self._rows, Feature(POSITIONS, blanks, TOKEN_POSITIONS, longest), *more)


def restore_masked_words(start: Pretrained, vocab_file: Optional[str] = None, precision: str = FLOAT32) -> MaskedWords:
    """Return the model of a checkpoint, which must have a masked-LM head and a vocabulary."""
    missing = start.missing_of_masked_lm()
    if missing:
        raise UserError(f"{start.key}: {start.origin} has no masked-LM head ({missing[0]} is missing); {MASKED_LM_FIX}")
    fields = {"max_seq_length": SHORTEST_SAMPLE, "max_predictions_per_seq": 1, "use_next_sentence": False}
    config = prediction_config(precision, vocab_file=vocab_file, **fields)
    architecture = resolved_architecture(config, start)
    settings = tokenizer_settings(config.vocab_file, config.lower_case, architecture, start)
    _, built = restore_task(start, PRETRAINING, config)
    longest = longest_text(start, PRETRAINING) if start.native else architecture.max_position_embeddings
    return MaskedWords(settings, longest, architecture.vocab_size, built.blocks)
