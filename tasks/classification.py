"""Classification and regression of texts and pairs: GLUE, CLUE (Devlin et al. 2019, section 4.1) and own files."""

from __future__ import annotations

import logging
import math
import re
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np
from scipy.special import expit, softmax

from checkpoints.pretrained.pretrained import Pretrained
from data_utils.classification.benchmarks import TASKS
from data_utils.classification.features import Features, classification_features, text_features
from data_utils.classification.own import own_task
from data_utils.classification.reading import Examples, read_split
from data_utils.classification.scoring import (
    METRICS,
    constant_predictions,
    decode_predictions,
    joined_labels,
    write_submission,
)
from data_utils.classification.tasks import BenchmarkTask, Split
from data_utils.records.arrays import ArrayReader
from data_utils.records.features import FeatureSpec
from data_utils.records.pipeline import SampleReader
from execution.interface import Objective
from model.architecture import Architecture
from model.losses import ClassificationObjective, MultiLabelObjective, RegressionObjective
from model.tasks import CLASSIFICATION, MULTI_LABEL, REGRESSION, SINGLE_LABEL
from settings.data_sections import ClassificationData
from settings.schema import TrainingConfig
from tasks import write_baseline
from tasks.fine_tuning import FineTuning, held_out_facts
from training.initial_weights import InitialWeights
from training.prediction import Predictor
from utilities.errors import UserError
from utilities.metric_names import LOSS

logger = logging.getLogger(__name__)

SUBMISSION_FOLDER = "submission"
CLASSIFIER = "classifier.weight"
USUAL_SEPARATOR = ";"  # of labels, for models that do not specify one
MULTIPLE_CHOICE = "BertForMultipleChoice"  # Hugging Face's class, whose classifier compares samples
KINDS = {
    SINGLE_LABEL: "one class of each sample",
    MULTI_LABEL: "several labels of a sample",
    REGRESSION: "a number",
    MULTIPLE_CHOICE: "a choice among samples",
}
_NUMBERED = re.compile(r"label_\d+")  # Hugging Face's names of classes without a name
BAR_WIDTH, MOST_SHOWN = 30, 5  # of the classes of one sample
MANY_UNKNOWN = 0.1  # share of [UNK] above which the vocabulary is probably of another language


class HeldOut(NamedTuple):
    """A split that is evaluated after training."""

    split: Split
    examples: Examples


class Classification(FineTuning):
    """The task of ``run_seq_classification.py``; see :class:`training.task.Task`.

    Raises:
        UserError: there is no vocabulary, no data to evaluate on or nothing to evaluate; raised before training.
    """

    name = CLASSIFICATION
    outputs = ("logits",)
    reads_cls = True

    def __init__(self, config: TrainingConfig, architecture: Architecture, start: Optional[InitialWeights]):
        super().__init__(config, architecture, start)
        self.benchmark = select_benchmark(config, start)
        is_known = config.glue_task is not None or config.classification_data is not None
        self.text_counts = (1 + self.benchmark.is_pair,) if is_known else (1, 2)
        count = f"{' or '.join(map(str, self.text_counts))} text{'s' * (self.text_counts[-1] > 1)}"
        self.takes = f"{self.benchmark.name if is_known else 'the model'} takes {count}"
        if config.classification_data is not None:
            self.label_names = [label.name for label in self.benchmark.labels]
            self.text_columns = config.classification_data.text
        self.labels = self.benchmark.classes
        self.objective: Objective = ClassificationObjective(config.show_accuracy)
        if self.benchmark.is_multi_label:
            self.objective = MultiLabelObjective()
        elif self.benchmark.is_regression:
            self.objective = RegressionObjective()
        self._order = None if config.do_training else class_order(start, self.benchmark)
        self._validation: List[HeldOut] = []
        self._test: List[HeldOut] = []
        if not config.generated_dataset:
            if config.do_validation:
                self._validation = self._held_out(self.benchmark.validation, with_labels=True)
            if config.do_test:
                self._test = self._held_out(self.benchmark.test, with_labels=False)

    def features(self, length: int, labels: bool = True) -> FeatureSpec:
        """Return the features of a sample."""
        is_multi_label = self.benchmark.is_multi_label
        return classification_features(length, self._architecture.vocab_size, self.labels, labels, is_multi_label)

    def open_data(self) -> SampleReader:
        """Return the training samples, or generated ones."""
        config, benchmark = self._config, self.benchmark
        if config.generated_dataset:
            return self.generated()
        examples = self._read(benchmark.train, with_labels=True)
        assert examples is not None and examples.labels is not None, "training data is not optional"
        features = self.encoded(examples.texts)
        report_truncation(examples.origin, len(examples.texts), features, config.max_seq_length)
        self._facts = self._describe(examples, features)
        own = config.classification_data
        if own is not None and not (benchmark.is_regression or benchmark.is_multi_label):
            weights = balanced_weights(examples.labels, self.labels) if own.class_weights == "balanced" else ()
            self.objective = ClassificationObjective(config.show_accuracy, weights, own.label_smoothing)
        samples = {**features.arrays, "labels": examples.labels}
        return self.rows(ArrayReader(self.features(config.max_seq_length), samples), features.lengths)

    @staticmethod
    def metrics(config: TrainingConfig) -> Sequence[str]:
        """Return the benchmark's scores on each of its validation sets."""
        benchmark = select_benchmark(config, None)
        return [score_name(metric, split) for split in benchmark.validation for metric in benchmark.metrics]

    def evaluate(self, predict: Predictor, folder: Optional[Path]) -> Dict[str, float]:
        """Score every validation set, and write predictions for every test set in the leaderboard's format."""
        scores: Dict[str, float] = {}
        baseline: Dict[str, float] = {}
        for split, examples in self._validation:
            predictions = self._predictions(predict, examples)
            assert examples.labels is not None, "validation data has labels"
            values = compute_scores(self.benchmark, predictions, examples.labels)
            scores.update({score_name(metric, split): value for metric, value in values.items()})
            if folder is None:
                continue
            logger.info("validation on %s samples of %s", f"{len(examples.texts):,}", examples.origin)
            constant = constant_predictions(self.benchmark, examples.labels)
            values = compute_scores(self.benchmark, constant, examples.labels)
            baseline.update({score_name(metric, split): value for metric, value in values.items()})
            if not (self.benchmark.is_regression or self.benchmark.is_multi_label):
                shown = ", ".join(f"{metric} {value:.4f}" for metric, value in values.items())
                logger.info("  always %s, the most frequent class: %s", self.benchmark.labels[constant[0]].name, shown)
        if folder is None:
            return scores
        write_baseline(folder, baseline)
        for split, examples in self._test:
            path = folder / SUBMISSION_FOLDER / split.submission
            write_submission(path, self.benchmark, examples.ids, self._predictions(predict, examples))
            logger.info("predictions for %s samples of %s: %s", f"{len(examples.texts):,}", examples.origin, path)
        return scores

    def summary(self, metrics: Dict[str, float], dataset: Dict[str, Any]) -> List[str]:
        """Compare the loss with baselines: the labels' frequencies, and the uniform distribution."""
        lines = [f"{metrics[LOSS]:8.4f}: the loss of the last logging period, compared with"]
        if "label_variance" in dataset:
            return [*lines, f"{dataset['label_variance']:8.4f}: always predicting the mean of the scores"]
        if "label_entropy_nats" in dataset:
            lines.append(f"{dataset['label_entropy_nats']:8.4f}: class frequencies only (entropy)")
        classes = 2 if self.benchmark.is_multi_label else self.benchmark.classes  # with or without a label
        return [*lines, f"{math.log(classes):8.4f}: uniform baseline, ln({classes})"]

    def encoded(self, texts: Sequence[Tuple[str, ...]]) -> Features:
        """Return the model inputs of texts, one or two for each sample."""
        return text_features(self.tokenizer, texts, self._config.max_seq_length)

    def logits(self, predict: Predictor, texts: Sequence[Tuple[str, ...]]) -> np.ndarray:
        """Return the model's outputs for texts, ``(N, classes)``, in the order of the task's classes."""
        inputs = self.encoded(texts)
        samples = ArrayReader(self.features(self._config.max_seq_length, labels=False), inputs.arrays)
        logits = self.predicted(predict, samples, inputs.lengths)["logits"]
        return logits if self._order is None else logits[:, self._order]

    def describe(self, predict: Predictor, texts: Sequence[str]) -> List[str]:
        """Return lines with the classes of one sample and their probabilities, the likeliest first; or its score.

        Raises:
            UserError: the task takes another number of texts; if the task is unknown, it may take one or two.
        """
        self.check_texts(len(texts))
        logits = self.logits(predict, [tuple(texts)])
        if self.benchmark.is_regression:
            low, high = self.benchmark.score_range
            score = self._scores(logits)[0]
            return [f"{score:.4g}" if math.isinf(high) else f"{score:.2f} on a scale from {low:g} to {high:g}"]
        probabilities = self._probabilities(logits)[0]
        shown = max(MOST_SHOWN, int(np.sum(probabilities > 0.5)))
        order = np.argsort(-probabilities, kind="stable")[:shown].tolist()
        names = [label.name for label in self.benchmark.labels]
        width = max(len(names[number]) for number in order)
        shares = [(names[number], float(probabilities[number])) for number in order]
        return [f"{name:<{width}}  {share:7.2%}  {'█' * round(share * BAR_WIDTH)}".rstrip() for name, share in shares]

    @property
    def predicted_columns(self) -> Tuple[str, ...]:
        """The columns that predictions add to a table."""
        if self.benchmark.is_regression:
            return ("prediction",)
        best = () if self.benchmark.is_multi_label else ("probability",)
        return ("prediction", *best, *(f"probability_{label.name}" for label in self.benchmark.labels))

    def predicted_rows(self, predict: Predictor, texts: Sequence[Tuple[str, ...]]) -> List[Dict[str, Any]]:
        """Return for each sample its class or labels and the probabilities of all, or its score."""
        logits = self.logits(predict, texts)
        if self.benchmark.is_regression:
            return [{"prediction": float(f"{score:.6g}")} for score in self._scores(logits).tolist()]
        predictions, probabilities = decode_predictions(self.benchmark, logits), self._probabilities(logits)
        shares = np.round(probabilities.astype(np.float64), 6).tolist()
        if self.benchmark.is_multi_label:
            answers = [[joined_labels(self.benchmark, row)] for row in predictions]
        else:
            names = [label.name for label in self.benchmark.labels]
            answers = [[names[number], row[number]] for number, row in zip(predictions.tolist(), shares)]
        return [dict(zip(self.predicted_columns, (*answer, *row))) for answer, row in zip(answers, shares)]

    def _probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Return the probabilities of classes or labels, ``(N, C)``."""
        return expit(logits) if self.benchmark.is_multi_label else softmax(logits, axis=-1)

    def _scores(self, logits: np.ndarray) -> np.ndarray:
        """Return the scores of a regression, ``(N,)``, within their range."""
        return np.clip(decode_predictions(self.benchmark, logits), *self.benchmark.score_range)

    def _predictions(self, predict: Predictor, examples: Examples) -> np.ndarray:
        return decode_predictions(self.benchmark, self.logits(predict, examples.texts))

    def _read(self, split: Split, with_labels: bool) -> Optional[Examples]:
        folder = self._config.dataset_dir
        return read_split(self.benchmark, split, Path(folder) if folder else None, with_labels)

    def _held_out(self, splits: Sequence[Split], with_labels: bool) -> List[HeldOut]:
        read = [(split, self._read(split, with_labels)) for split in splits]
        return [HeldOut(split, examples) for split, examples in read if examples is not None]

    def _describe(self, examples: Examples, features: Features) -> Dict[str, Any]:
        """Return the facts about the training data for the report."""
        assert examples.labels is not None
        return {
            "records": len(examples.texts),
            **held_out_facts([len(held_out.examples.texts) for held_out in self._validation]),
            "source": examples.origin,
            "benchmark": f"{self.benchmark.benchmark.upper()} {self.benchmark.name}",
            **label_facts(self.benchmark, examples.labels),
            "samples_cut": features.truncated,
            "unknown_pieces_share": features.unknown,
            **self.vocabulary_facts(),
        }


def select_benchmark(config: TrainingConfig, start: Optional[InitialWeights]) -> BenchmarkTask:
    """Return the benchmark task, or that of own files; if neither is known, one with the classes of the model."""
    if config.glue_task is not None:
        return TASKS[config.glue_task]
    own = config.classification_data or ClassificationData()
    if own.classes is None and not own.regression:
        classes, separator = ["0", "1"], own.label_separator  # of random data
        if isinstance(start, Pretrained) and CLASSIFIER in start.weights:
            count = start.weights[CLASSIFIER].shape[0]
            classes = class_names(start.settings) or [f"LABEL_{number}" for number in range(count)]
            if start.settings.get("problem_type") == MULTI_LABEL:
                separator = separator or USUAL_SEPARATOR
        facts = {"classes": classes, "regression": len(classes) == 1 and not separator, "label_separator": separator}
        own = own.model_copy(update=facts)
    return own_task(**own.without_loss())


def score_name(metric: str, split: Split) -> str:
    """Return the name of a score: ``accuracy``, or ``accuracy_mismatched`` if there are several validation sets."""
    return f"{metric}_{split.title}" if split.title else metric


def compute_scores(benchmark: BenchmarkTask, predictions: np.ndarray, labels: np.ndarray) -> Dict[str, float]:
    """Return the task's metrics by name."""
    return {metric: METRICS[metric](predictions, labels) for metric in benchmark.metrics}


def label_facts(benchmark: BenchmarkTask, labels: np.ndarray) -> Dict[str, Any]:
    """Return the frequencies of the classes and their entropy (the mean of labels'), or mean and variance of scores."""
    if benchmark.is_regression:
        return {"label_mean": float(np.mean(labels)), "label_variance": float(np.var(labels))}
    if benchmark.is_multi_label:
        counts = labels.sum(axis=0)
        shares = np.stack([counts, len(labels) - counts]) / len(labels)  # (2, C) with and without the label
    else:
        counts = np.bincount(labels, minlength=benchmark.classes)
        shares = counts / counts.sum()
    entropy = -np.sum(shares * np.log(np.where(shares > 0, shares, 1)), axis=0)
    return {
        "classes": {label.name: int(count) for label, count in zip(benchmark.labels, counts)},
        "label_entropy_nats": float(np.mean(entropy)),
    }


def balanced_weights(labels: np.ndarray, classes: int) -> List[float]:
    """Return samples / (classes × samples of the class) for each class; 1 for a class without samples."""
    counts = np.bincount(labels, minlength=classes)
    return [len(labels) / (classes * count) if count else 1.0 for count in counts.tolist()]


def report_truncation(origin: str, samples: int, features: Features, max_seq_length: int) -> None:
    """Log how many samples were cut, and warn if the vocabulary does not fit the text."""
    if features.truncated:
        longer = f"{features.truncated:,} of {samples:,} samples ({features.truncated / samples:.1%})"
        logger.info("%s: %s are longer than max_seq_length %d and are cut", origin, longer, max_seq_length)
    if features.unknown > MANY_UNKNOWN:
        share = f"{features.unknown:.0%}"
        logger.warning("%s: %s of the pieces are unknown; is the vocabulary of this language?", origin, share)


def class_order(start: Optional[InitialWeights], benchmark: BenchmarkTask) -> Optional[np.ndarray]:
    """Return the output for each of the task's classes of a model that is evaluated without training.

    Other projects' models number the classes differently; ``id2label`` in their settings gives their names.

    Returns:
        ``(classes,)`` output numbers; None if they are, as far as known, in the task's order.

    Raises:
        UserError: the checkpoint has no classifier, so its answers would be random, or one of another kind.
    """
    if not isinstance(start, Pretrained):
        return None
    if CLASSIFIER not in start.weights:
        raise UserError(
            f"{start.origin} has no classifier, so its scores would be random; train first (--do-training true), or"
            " name a checkpoint of classification"
        )
    check_kind(start, benchmark)
    if start.own:
        trained = (start.settings.get("config") or {}).get("glue_task")
        if trained not in (None, benchmark.name):
            logger.warning("%s was trained for %s, not for %s", start.origin, trained, benchmark.name)
    names = class_names(start.settings)
    if benchmark.is_regression or names is None:
        return None
    order = matched(names, benchmark)
    if order is None:
        shown = ", ".join(names[:8])
        logger.warning(
            "%s calls its classes %s; they are assumed to be in the order of %s", start.origin, shown, benchmark.name
        )
        return None
    return None if order == list(range(len(order))) else np.array(order)


def check_kind(start: Pretrained, benchmark: BenchmarkTask) -> None:
    """Refuse a classifier whose outputs mean something else than the task's; warn if labels are asked of an unknown."""
    asked = MULTI_LABEL if benchmark.is_multi_label else REGRESSION if benchmark.is_regression else SINGLE_LABEL
    kind = classifier_kind(start.settings)
    if kind is None and asked == MULTI_LABEL:
        logger.warning("%s does not say that its classes are labels (problem_type); it is assumed", start.origin)
    if kind in KINDS and kind != asked:
        raise UserError(
            f"{start.origin} was trained for {KINDS[kind]}, not for {KINDS[asked]}; train first (--do-training true),"
            " or name a checkpoint of this kind"
        )
    activation = (start.settings.get("sentence_transformers") or {}).get("activation_fn")
    activation = activation or start.settings.get("sbert_ce_default_activation_function")
    if isinstance(activation, str) and not activation.endswith("Identity"):
        raise UserError(f"{start.origin}: its config.json asks for {activation}, which is not applied to its outputs")


def classifier_kind(settings: Mapping[str, Any]) -> Optional[str]:
    """Return what a classifier says, by Hugging Face's name (``problem_type``); None if its settings do not say it."""
    config = settings.get("config") or {}
    own, benchmark = config.get("classification_data"), TASKS.get(config.get("glue_task") or "")
    if own is not None:
        is_set, is_number = own.get("label_separator") is not None, own.get("regression")
    elif benchmark is not None:
        is_set, is_number = benchmark.is_multi_label, benchmark.is_regression
    else:
        is_choice = MULTIPLE_CHOICE in (settings.get("architectures") or ())
        return MULTIPLE_CHOICE if is_choice else settings.get("problem_type")
    return MULTI_LABEL if is_set else REGRESSION if is_number else SINGLE_LABEL


def class_names(settings: Mapping[str, Any]) -> Optional[List[str]]:
    """Return the names of a model's classes in the order of its outputs; None if they have no names.

    Args:
        settings: Hugging Face's, or the facts of a checkpoint of this project.
    """
    if settings.get("labels"):
        return list(settings["labels"])
    names = settings.get("id2label")
    if not isinstance(names, dict) or not all(str(number).isdecimal() for number in names):
        return None
    ordered = [str(names[number]) for number in sorted(names, key=int)]
    return None if all(_NUMBERED.fullmatch(name.lower()) for name in ordered) else ordered


def matched(names: List[str], benchmark: BenchmarkTask) -> Optional[List[int]]:
    """Return the index of each of the task's classes in ``names``; None unless each occurs once."""
    plain = [name.strip().lower() for name in names]
    indices = []
    for label in benchmark.labels:
        known = [number for number, name in enumerate(plain) if name in (label.value.lower(), label.name.lower())]
        if len(known) != 1:
            return None
        indices += known
    return indices if len(indices) == len(names) else None


TASK = Classification
