"""Token classification: named entities, parts of speech and other tags of words (Devlin et al. 2019, section 5.3)."""

from __future__ import annotations

import logging
import math
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
from scipy.special import softmax

from checkpoints.pretrained.pretrained import Pretrained
from data_utils.classification.features import cut_line
from data_utils.records.arrays import ArrayReader
from data_utils.records.features import FeatureSpec
from data_utils.records.pipeline import SampleReader
from data_utils.tagged_columns import ABSENT, OUTSIDE
from data_utils.tagged_sentences import (
    CLUENER,
    COLUMNS,
    SPANS,
    TAG_COLUMN,
    TEST,
    TOKENS,
    TRAIN,
    VALIDATION,
    Sentences,
    are_entity_tags,
    as_usual,
    read_sentences,
)
from data_utils.token_classification import (
    Encoded,
    constant_tags,
    encode_words,
    entity_scores,
    find_entities,
    prediction_lines,
    token_features,
    word_scores,
    word_spans,
)
from execution.interface import Tensors, cross_entropy
from keras_extensions.backend import tf
from model.architecture import Architecture
from model.losses import ACCURACY, PackObjective, correct
from model.tasks import TASKS, TOKEN_CLASSIFICATION
from settings.schema import TrainingConfig
from tasks import write_baseline
from tasks.answers import Answer
from tasks.fine_tuning import FineTuning, held_out_count
from tasks.mistakes import Mistakes, tag_mistakes, write_mistakes
from tasks.saved_classifier import CLASSIFIER, class_names, output_names, report_rows, rows_by_name
from training.initial_weights import InitialWeights
from training.prediction import Predict, Predictor, PredictorCall
from utilities.errors import UserError
from utilities.files import write_atomically
from utilities.metric_names import LOSS, MACRO_F1
from utilities.tables import listed

logger = logging.getLogger(__name__)

METRICS = ("f1", "precision", "recall")
METRICS_OF_WORDS = (MACRO_F1, "precision", "recall", ACCURACY)  # of tags that are not those of entities
PREDICTIONS = {CLUENER: "cluener_predict.json", COLUMNS: "test_predictions.txt", TOKENS: "test_predictions.json"}
PREDICTIONS[SPANS] = PREDICTIONS[TOKENS]
GENERATED_LABELS = (OUTSIDE, "B-PER", "I-PER", "B-LOC", "I-LOC")  # of random data


class Entity(NamedTuple):
    """An entity of a text: its type, the least certain word's probability, and its part of the text.

    If tags are not those of entities, each word is one, and its type is its tag. The part is ``text[begin:end]``.
    """

    kind: str
    probability: float
    text: str
    begin: int
    end: int


class TagObjective(PackObjective):
    """Mean cross-entropy over the words (Devlin et al. 2019, section 5.3)."""

    def __init__(self, accuracies: bool = True):
        self.terms = (LOSS, ACCURACY) if accuracies else (LOSS,)

    def term_counts(self, batch: Tensors) -> Tensors:
        tagged = tf.cast(tf.greater(batch["labels"], 0), tf.float32)
        return dict.fromkeys(self.terms, tf.reduce_sum(tagged))

    def term_sums(self, outputs: Tensors, batch: Tensors) -> Tensors:
        labels, scores = batch["labels"], outputs["logits"]  # (B, S), (B, S, C)
        tagged = tf.cast(tf.greater(labels, 0), tf.float32)
        classes = tf.maximum(labels - 1, 0)
        return {
            LOSS: tf.reduce_sum(tagged * cross_entropy(scores, classes)),
            ACCURACY: tf.reduce_sum(tagged * correct(scores, classes)),
        }


class TokenClassification(FineTuning):
    """The task of ``run_token_classification.py``; see :class:`training.task.Task`."""

    name = TOKEN_CLASSIFICATION
    outputs = ("logits",)
    takes = "token classification takes 1 text"
    predicted_columns = ("entities",)

    def __init__(self, config: TrainingConfig, architecture: Architecture, start: Optional[InitialWeights]):
        super().__init__(config, architecture, start)
        self.objective = TagObjective(config.show_accuracy)
        self._train = self._read(TRAIN) if config.do_training else None
        self._validation = self._read(VALIDATION) if config.do_validation else None
        self._test = self._read(TEST) if config.do_test else None
        self.label_names = label_names(start, self._train, config.generated_dataset)
        self.labels = len(self.label_names)
        if not config.generated_dataset:
            self.head_rows = tag_rows(start, self.label_names)
        self._has_entities = are_entity_tags(self.label_names)
        self._validation = self._with_known_tags(self._validation)
        self._test = self._with_known_tags(self._test)

    @staticmethod
    def metrics(config: TrainingConfig) -> Sequence[str]:
        """Return the scores of entities, or of words if the data have other tags."""
        if config.generated_dataset or config.dataset_dir is None:
            return METRICS
        columns, split = config.token_data, TRAIN if config.do_training else VALIDATION
        sentences = read_sentences(config.dataset_dir, split, columns.word_column, columns.tag_column)
        return METRICS if are_entity_tags(set(chain.from_iterable(sentences.tags or ()))) else METRICS_OF_WORDS

    def features(self, length: int, labels: bool = True) -> FeatureSpec:
        return token_features(length, self._architecture.vocab_size, self.labels, labels)

    def open_data(self) -> SampleReader:
        if self._config.generated_dataset:
            return self.generated()
        assert self._train is not None and self._train.tags is not None, "training data has tags"
        encoded = self._encoded(self._train.words)
        report_lost_words(self._train.origin, encoded, self._config.max_seq_length)
        self._description = self._describe(self._train, encoded)
        samples = {**encoded.arrays, "labels": encoded.labels(self._train.tags, self.label_names)}
        return self.rows(ArrayReader(self.features(self._config.max_seq_length), samples), encoded.lengths)

    def evaluate(self, predict: Predictor, folder: Optional[Path]) -> Dict[str, float]:
        """Score validation and test data by entity, or by word, and write predictions for the test data."""
        scores: Dict[str, float] = {}
        baseline: Dict[str, float] = {}
        mistakes: List[Mistakes] = []
        for sentences, suffix in ((self._validation, ""), (self._test if folder is not None else None, "_test")):
            if sentences is None:
                continue
            tags = self.tags(predict, sentences.words, sentences.origin if folder is not None else None)
            if suffix and folder is not None:
                path = folder / PREDICTIONS[sentences.form]
                lines = prediction_lines(sentences, tags)
                write_atomically(path, "".join(f"{line}\n" for line in lines).encode("utf-8"))
                logger.info("predictions for %s sentences of %s: %s", f"{len(tags):,}", sentences.origin, path)
            if sentences.tags is None:
                continue
            scored, names = (entity_scores, METRICS) if self._has_entities else (word_scores, METRICS_OF_WORDS)
            results = scored(sentences.tags, tags)
            scores.update({f"{name}{suffix}": results[""][name] for name in names})
            if folder is None:
                continue
            words, origin = sentences.words, sentences.origin
            texts = [text for text, _ in sentences.texts] if sentences.texts is not None else None
            mistakes.append(tag_mistakes(origin, words, sentences.tags, tags, results, self._has_entities, texts))
            constant = scored(sentences.tags, constant_tags(sentences.tags))[""]
            baseline.update({f"{name}{suffix}": constant[name] for name in names})
            for kind, values in results.items():
                shown = " ".join(f"{name} {value:.4g}" for name, value in values.items())
                logger.info("  %s %s", kind or ("all entities" if self._has_entities else "all tags"), shown)
        if folder is not None:
            write_baseline(folder, baseline)
            write_mistakes(folder, mistakes)
        return scores

    def summary(self, metrics: Dict[str, float], dataset: Dict[str, Any]) -> List[str]:
        """Compare the loss with baselines: the tags' frequencies, and the uniform distribution."""
        lines = [f"{metrics[LOSS]:8.4f}: the loss of the last logging period, compared with"]
        if "tag_entropy_nats" in dataset:
            lines.append(f"{dataset['tag_entropy_nats']:8.4f}: tag frequencies only (entropy)")
        return [*lines, f"{math.log(self.labels):8.4f}: uniform baseline, ln({self.labels})"]

    def answers(self, predict: Predict, texts: Sequence[Tuple[str, ...]]) -> List[Answer]:
        return [Answer(entities) for entities in self.entities(predict, [text for (text,) in texts])]

    def lines(self, answer: Answer) -> List[str]:
        """Return a line for each entity of a text: its type, the least certain word's probability, and its text."""
        return [f"{entity.kind}  {entity.probability:7.2%}  {entity.text}" for entity in answer] or ["no entities"]

    def row(self, answer: Answer) -> Dict[str, Any]:
        return {"entities": [{**entity._asdict(), "probability": round(entity.probability, 6)} for entity in answer]}

    def entities(self, predict: Predict, texts: Sequence[str]) -> List[List[Entity]]:
        """Return the entities of each text in their order."""
        spans = word_spans(self.tokenizer, texts)
        sentences = [[text[begin:end] for begin, end in each] for text, each in zip(texts, spans)]
        encoded = self._encoded(sentences)
        logits = self._logits(predict, encoded)
        shares = softmax(logits, axis=-1).max(axis=-1)[encoded.rows, encoded.columns].tolist()
        share_of_word = dict(zip(zip(encoded.rows.tolist(), encoded.words.tolist()), shares))
        tags = encoded.tags(logits.argmax(axis=-1), self.label_names, sentences)
        entities: List[List[Entity]] = []
        for row, (text, words) in enumerate(zip(texts, spans)):
            entities.append([])
            for kind, first, last in self._entities(tags[row]):
                share = min(share_of_word[row, word] for word in range(first, last + 1))
                begin, end = words[first][0], words[last][1]
                entities[-1].append(Entity(kind, share, text[begin:end], begin, end))
        return entities

    def tags(
        self, predict: Predict, sentences: Sequence[Sequence[str]], origin: Optional[str] = None
    ) -> List[List[str]]:
        """Return the tags of the words of each sentence; log what was cut if the sentences' origin is given."""
        encoded = self._encoded(sentences)
        if origin is not None:
            report_lost_words(origin, encoded, self._config.max_seq_length)
        return encoded.tags(self._logits(predict, encoded).argmax(axis=-1), self.label_names, sentences)

    def _read(self, split: str) -> Optional[Sentences]:
        config = self._config
        if config.generated_dataset:
            return None
        columns = config.token_data
        sentences = read_sentences(config.dataset_dir, split, columns.word_column, columns.tag_column)
        for note in sentences.notes:
            logger.warning("%s: %s", sentences.origin, note)
        return sentences

    def _with_known_tags(self, sentences: Optional[Sentences]) -> Optional[Sentences]:
        """Return sentences to score; without tags if the file's last column has something else."""
        if sentences is None or sentences.tags is None or self._config.generated_dataset:
            return sentences
        tags = set(chain.from_iterable(sentences.tags)) - {OUTSIDE}
        if not tags or tags & set(self.label_names):
            return sentences
        found, known = listed(sorted(tags)), listed(self.label_names)
        what = f"{sentences.origin}: has the tags {found}, and none of the model's, {known}"
        if sentences is not self._test:
            raise UserError(f"{what}; name the column of tags with {TAG_COLUMN}, or another folder")
        logger.warning("%s; it is predicted, and not scored", what)
        return sentences._replace(tags=None)

    def _entities(self, tags: Sequence[str]) -> List[Tuple[str, int, int]]:
        """Return type, first and last word of each entity, or each word with its tag."""
        if self._has_entities:
            return find_entities(tags)
        return [(tag, number, number) for number, tag in enumerate(tags) if tag not in (OUTSIDE, ABSENT)]

    def _encoded(self, sentences: Sequence[Sequence[str]]) -> Encoded:
        return encode_words(self.tokenizer, sentences, self._config.max_seq_length)

    def _logits(self, predict: Predict, encoded: Encoded) -> np.ndarray:
        """Return the model's outputs for each token, ``(N, S, C)``."""
        if isinstance(predict, PredictorCall):
            predict.count(len(encoded.lengths), encoded.truncated, encoded.truncated_words)
        samples = ArrayReader(self.features(self._config.max_seq_length, labels=False), encoded.arrays)
        return self.predicted(predict, samples, encoded.lengths)["logits"]

    def _describe(self, sentences: Sentences, encoded: Encoded) -> Dict[str, Any]:
        assert sentences.tags is not None
        counts = Counter(chain.from_iterable(sentences.tags))
        shares = np.array(list(counts.values())) / sum(counts.values())
        return {
            "records": len(sentences.words),
            **held_out_count([] if self._validation is None else [len(self._validation.words)]),
            "source": sentences.origin,
            "words": sum(counts.values()),
            "entities": dict(Counter(kind for tags in sentences.tags for kind, _, _ in self._entities(tags))),
            "tag_entropy_nats": float(-np.sum(shares * np.log(shares))),
            "sentences_cut": encoded.truncated,
            "words_cut": encoded.truncated_words,
            "unknown_pieces_share": encoded.unknown,
            **self.vocabulary_description(),
        }


def label_names(start: Optional[InitialWeights], train: Optional[Sentences], generated: bool) -> List[str]:
    """Return the outputs' names: the tags to train on, in the model's order if it has the same, or else the model's."""
    settings = getattr(start, "settings", None) or {}
    known = as_usual(class_names(settings) or [])
    if train is not None and train.tags is not None:
        tags = set(chain.from_iterable(train.tags))
        if are_entity_tags(tags):
            tags.add(OUTSIDE)
        return known if set(known) == tags else sorted(tags, key=lambda tag: (tag != OUTSIDE, tag[2:], tag))
    if known or generated:
        return known or list(GENERATED_LABELS)
    origin = start.origin if start is not None else "a model with random weights"
    raise UserError(
        f"{origin} does not name its tags; fine-tune it first with {TASKS[TOKEN_CLASSIFICATION].program}, or name a"
        " checkpoint of token classification"
    )


def tag_rows(start: Optional[InitialWeights], names: Sequence[str]) -> Optional[List[Optional[int]]]:
    """Return the row of a checkpoint's head for each of the tags; see :class:`training.task.Task`."""
    if not isinstance(start, Pretrained) or CLASSIFIER not in start.weights:
        return None
    theirs = as_usual(output_names(start))
    rows = rows_by_name(theirs, [(name,) for name in names])
    if class_names(start.settings) is None and not any(row is not None for row in rows):
        if len(theirs) == len(names):
            logger.info("%s does not name its tags; they are taken, in order, as %s", start.origin, listed(names))
        return None
    report_rows(start, theirs, names, rows)
    return rows


def report_lost_words(origin: str, encoded: Encoded, max_seq_length: int) -> None:
    """Log how much of the sentences was cut; the words that were cut count as wrong, or as in no entity."""
    if encoded.truncated:
        count = len(encoded.lengths)
        logger.warning(cut_line(origin, count, encoded.truncated, max_seq_length, encoded.truncated_words))


TASK = TokenClassification
