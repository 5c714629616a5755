"""Sentence embeddings, trained on the user's own pairs of texts (Reimers and Gurevych 2019).

A sample is two or three texts, each a sequence of its own in one row of the batch. Without labels, the second text is
the right answer to the first, and all other answers of the micro batch are wrong (in-batch negatives, van den Oord et
al. 2018): those of other samples, and the third text of each. With labels, the cosine of two texts is fitted to their
similarity.

B micro batch · K texts of a sample · N sequences of a row, a multiple of K · M = B·N / K samples · H hidden
"""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from data_utils.classification.features import Features, report_truncation, text_features
from data_utils.classification.reading import Examples, read_split, report_copies
from data_utils.classification.scoring import METRICS
from data_utils.classification.tasks import Split
from data_utils.records.arrays import ArrayReader
from data_utils.records.features import SCORE, Feature, FeatureSpec, fine_tuning_features
from data_utils.records.pipeline import SampleReader
from execution.interface import Objective, Tensors, cross_entropy
from keras_extensions.backend import tf
from model.architecture import Architecture
from model.layers import MASKED_SCORE
from model.losses import ACCURACY, SEQUENCE_WEIGHTS, PackObjective, correct
from model.tasks import SENTENCE_EMBEDDING
from settings.schema import TrainingConfig
from tasks.classification import label_description
from tasks.fine_tuning import FineTuning, held_out_count
from tasks.planned_files import described_files
from training.initial_weights import InitialWeights
from training.prediction import Predict, Predictor
from utilities.metric_names import LOSS

logger = logging.getLogger(__name__)

EMBEDDINGS = "embeddings"
RECALL_AT = (1, 10)
RECALLS = tuple(f"recall_at_{count}" for count in RECALL_AT)
QUERIES = 1024  # Limits the memory of cosines.


class RankingObjective(PackObjective):
    """Mean cross-entropy of scale × cosine over the answers of a micro batch; how often the right one is highest."""

    def __init__(self, texts: int, scale: float, accuracies: bool = True):
        self._texts, self._scale = texts, scale
        self.terms = (LOSS, ACCURACY) if accuracies else (LOSS,)

    def samples_in_packs(self, batch: Tensors) -> Tensors:
        return with_sample_weights(batch, self._texts)

    def term_counts(self, batch: Tensors) -> Tensors:
        return dict.fromkeys(self.terms, tf.reduce_sum(sample_weights(batch, self._texts)))

    def term_sums(self, outputs: Tensors, batch: Tensors) -> Tensors:
        real = tf.reshape(sample_weights(batch, self._texts), (-1,))  # (M,)
        vectors = unit_vectors(outputs, self._texts)  # (M, K, H)
        answers = tf.concat(tf.unstack(vectors, axis=1)[1:], axis=0)  # ((K - 1)·M, H)
        absent = 1.0 - tf.tile(real, (self._texts - 1,))
        scores = self._scale * tf.matmul(vectors[:, 0], answers, transpose_b=True) + absent * MASKED_SCORE
        right = tf.range(tf.shape(real)[0])
        return {
            LOSS: tf.reduce_sum(real * cross_entropy(scores, right)),
            ACCURACY: tf.reduce_sum(real * correct(scores, right)),
        }


class SimilarityObjective(PackObjective):
    """Mean squared difference of the cosine of two texts and their similarity."""

    def samples_in_packs(self, batch: Tensors) -> Tensors:
        return with_sample_weights(batch, 2)

    def term_counts(self, batch: Tensors) -> Tensors:
        return {LOSS: tf.reduce_sum(sample_weights(batch, 2))}

    def term_sums(self, outputs: Tensors, batch: Tensors) -> Tensors:
        vectors = unit_vectors(outputs, 2)  # (M, 2, H)
        cosines = tf.reduce_sum(vectors[:, 0] * vectors[:, 1], axis=-1)
        labels = tf.reshape(batch["labels"][:, ::2], (-1,))  # both texts of a pair have its label
        real = tf.reshape(sample_weights(batch, 2), (-1,))
        return {LOSS: tf.reduce_sum(real * tf.square(cosines - labels))}


def sample_weights(batch: Tensors, texts: int) -> tf.Tensor:
    """Return 1.0 for each sample of a row, else 0.0: (…, N / K), for rows of (…, S) tokens."""
    last = tf.range(texts, batch["cls_positions"].shape[-1] + 1, texts)  # number of each sample's last sequence
    sequences = tf.reduce_max(batch["input_mask"], axis=-1, keepdims=True)  # (…, 1) sequences of the row
    return tf.cast(tf.less_equal(last, sequences), tf.float32)


def with_sample_weights(batch: Tensors, texts: int) -> Tensors:
    """Return a batch with the weights of its samples instead of its texts; without, if each row is one sample."""
    features = {name: values for name, values in batch.items() if name not in SEQUENCE_WEIGHTS}
    weights = sample_weights(batch, texts)
    return features if weights.shape[-1] == 1 else {**features, SEQUENCE_WEIGHTS[0]: weights}


def unit_vectors(outputs: Tensors, texts: int) -> tf.Tensor:
    """Return the embeddings of samples, scaled to length 1: (M, K, H) from (B, N, H)."""
    embeddings = tf.math.l2_normalize(tf.cast(outputs[EMBEDDINGS], tf.float32), axis=-1)
    return tf.reshape(embeddings, (-1, texts, embeddings.shape[-1]))


class SentenceEmbedding(FineTuning):
    """The task of ``run_sentence_embedding.py``; see :class:`training.task.Task`.

    Each text that is embedded alone gets the prompt; embeddings have length 1 if it ``normalizes``.
    """

    name = SENTENCE_EMBEDDING
    outputs = (EMBEDDINGS,)
    takes = "a text is embedded alone, so a sample is 1 text"
    reads_cls = True

    def __init__(self, config: TrainingConfig, architecture: Architecture, start: Optional[InitialWeights]):
        super().__init__(config, architecture, start)
        section = config.embedding
        self.prompt, self.normalizes = "", False
        # A text that is only embedded is a row of its own.
        self.texts = len(section.text) if config.do_training or config.do_validation else 1
        self.objective: Objective = SimilarityObjective()
        if section.label is None:
            self.objective = RankingObjective(self.texts, section.scale, config.show_accuracy)
        self._files = described_files(section)
        self._validation: Optional[Examples] = None
        if config.do_validation and not config.generated_dataset:
            self._validation = self._read(self._files.validation[0])

    @staticmethod
    def metrics(config: TrainingConfig) -> Sequence[str]:
        """Return correlations with the labels, Spearman's first, or without labels recalls."""
        return RECALLS if config.embedding.label is None else ("spearman", "pearson")

    def features(self, length: int, labels: bool = True) -> FeatureSpec:
        has_labels = labels and self._config.embedding.label is not None
        label = (Feature("labels", 1, SCORE),) if has_labels else ()
        return fine_tuning_features(length, self._architecture.vocab_size, *label)

    def open_data(self) -> SampleReader:
        config = self._config
        if config.generated_dataset:
            return self.generated()
        examples = self._read(self._files.train)
        if self._validation is not None:
            report_copies(examples, self._validation)
        features = text_features(self.tokenizer, examples.texts, config.max_seq_length, separate=True)
        report_truncation(examples.origin, len(examples.texts), features, config.max_seq_length)
        self._description = self._describe(examples, features)
        arrays = dict(features.arrays)
        if examples.labels is not None:
            arrays["labels"] = np.repeat(examples.labels, self.texts)
        return self.rows(ArrayReader(self.features(config.max_seq_length), arrays), features.lengths)

    def evaluate(self, predict: Predictor, folder: Optional[Path]) -> Dict[str, float]:
        """Score the validation set: correlations of the cosines with the labels, or recalls among all answers."""
        examples = self._validation
        if examples is None:
            return {}
        if folder is not None:
            logger.info("validation on %s samples of %s", f"{len(examples.texts):,}", examples.origin)
        texts = list(dict.fromkeys(text for sample in examples.texts for text in sample))
        origin = examples.origin if folder is not None else None
        vectors, number = normalized(self.embeddings(predict, texts, origin)), {text: n for n, text in enumerate(texts)}
        rows = np.array([[number[text] for text in sample] for sample in examples.texts])  # (W, K)
        if examples.labels is not None:
            cosines = np.sum(vectors[rows[:, 0]] * vectors[rows[:, 1]], axis=1)
            return {name: METRICS[name](cosines, examples.labels) for name in self._files.metrics}
        answers, right = np.unique(rows[:, 1:], return_inverse=True)
        return recalls(vectors[rows[:, 0]], vectors[answers], right.reshape(len(rows), -1)[:, 0])

    def summary(self, metrics: Dict[str, float], dataset: Dict[str, Any]) -> List[str]:
        """Compare the loss with a baseline that does not read the texts."""
        lines = [f"{metrics[LOSS]:8.4f}: the loss of the last logging period, compared with"]
        if "label_variance" in dataset:
            return [*lines, f"{dataset['label_variance']:8.4f}: always predicting the mean of the labels"]
        if self._config.embedding.label is not None or self._config.packing.max_sequences_per_pack is not None:
            return []
        answers = self._config.global_batch.micro_batch_size * (self.texts - 1)
        return [*lines, f"{math.log(answers):8.4f}: uniform baseline, ln({answers})"]

    def answers(self, predict: Predict, texts: Sequence[Tuple[str, ...]]) -> np.ndarray:
        """Return the embeddings of texts with the prompt before each, ``(len(texts), H)`` float32."""
        embeddings = self.embeddings(predict, [self.prompt + text for (text,) in texts])
        return normalized(embeddings) if self.normalizes else embeddings

    def embeddings(self, predict: Predict, texts: Sequence[str], origin: Optional[str] = None) -> np.ndarray:
        """Return the embeddings of texts, ``(len(texts), H)`` float32; log what was cut if their origin is given."""
        inputs = self.inputs(predict, [(text,) for text in texts], origin)
        return self.outputs_of(predict, inputs)[EMBEDDINGS]

    def _read(self, split: Split) -> Examples:
        has_labels = self._config.embedding.label is not None
        examples = read_split(self._files, split, self._config.data_folder, has_labels)
        assert examples is not None, "the user's own data is not optional"
        return examples

    def _describe(self, examples: Examples, features: Features) -> Dict[str, Any]:
        return {
            "records": len(examples.texts),
            **held_out_count([] if self._validation is None else [len(self._validation.texts)]),
            "source": examples.origin,
            **({} if examples.labels is None else label_description(self._files, examples.labels)),
            "samples_cut": features.truncated,
            "unknown_pieces_share": features.unknown,
            **self.vocabulary_description(),
        }


def normalized(embeddings: np.ndarray) -> np.ndarray:
    """Return embeddings, ``(…, H)``, scaled to length 1."""
    lengths = np.linalg.norm(embeddings, axis=-1, keepdims=True)
    return np.asarray(embeddings / np.maximum(lengths, 1e-12))


def recalls(questions: np.ndarray, answers: np.ndarray, right: np.ndarray) -> Dict[str, float]:
    """Return the share of questions whose right answer has one of the highest 1 and 10 cosines.

    Answers that have the same cosine are taken as in a random order, so a model for which all texts are alike finds
    1 of A answers.

    Args:
        questions: ``(W, H)``, of length 1 each, as are the others.
        answers: ``(A, H)``, all different answers.
        right: ``(W,)``, the number of the right answer to each question.
    """
    better, equal = [], []
    for begin in range(0, len(questions), QUERIES):
        part = slice(begin, begin + QUERIES)
        cosines = questions[part] @ answers.T
        own = np.take_along_axis(cosines, right[part, None], axis=1)
        better.append(np.sum(~(cosines <= own), axis=1))  # a NaN is never the right answer
        equal.append(np.sum(cosines == own, axis=1))
    ranks, ties = np.concatenate(better), np.concatenate(equal)
    found = {name: np.clip((count - ranks) / np.maximum(ties, 1), 0, 1) for name, count in zip(RECALLS, RECALL_AT)}
    return {name: float(np.mean(shares * (ties > 0))) for name, shares in found.items()}


TASK = SentenceEmbedding
