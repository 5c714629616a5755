"""Classification and regression of texts and pairs: GLUE, CLUE (Devlin et al. 2019, section 4.1) and own files."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
from scipy.special import expit, softmax

from checkpoints.pretrained.pretrained import Pretrained
from checkpoints.pretrained.sentence_transformers import output_activation
from data_utils.classification.benchmarks import TASKS as BENCHMARK_TASKS
from data_utils.classification.features import Features, classification_features, report_truncation
from data_utils.classification.reading import Examples, read_split, report_copies
from data_utils.classification.scoring import (
    METRICS,
    constant_predictions,
    decode_predictions,
    joined_labels,
    write_submission,
)
from data_utils.classification.tasks import USER, BenchmarkTask, Split
from data_utils.classification.user_task import user_task
from data_utils.records.arrays import ArrayReader
from data_utils.records.features import FeatureSpec
from data_utils.records.pipeline import SampleReader
from execution.interface import Objective
from model.architecture import Architecture
from model.losses import ClassificationObjective, LabelObjective, MultiLabelObjective, RegressionObjective
from model.tasks import CLASSIFICATION, MULTI_LABEL
from settings.data_sections import USUAL_SEPARATOR, ClassificationData
from settings.schema import TrainingConfig
from tasks import write_baseline
from tasks.answers import Answer
from tasks.fine_tuning import FineTuning, held_out_count
from tasks.mistakes import Mistakes, class_mistakes, label_mistakes, number_mistakes, write_mistakes
from tasks.saved_classifier import CLASSIFIER, SIGMOID, class_rows, output_names
from teacher.lesson import TeacherLesson  # room: teacher
from training.initial_weights import InitialWeights
from training.prediction import Predict, Predictor
from utilities.metric_names import LOSS

logger = logging.getLogger(__name__)

SUBMISSION_FOLDER = "submission"
BAR_WIDTH, MOST_SHOWN = 30, 5  # of the classes of one sample


class Choice(NamedTuple):
    label: str
    probability: float


class Classification(FineTuning):
    """The task of ``run_seq_classification.py``; see :class:`training.task.Task`."""

    name = CLASSIFICATION
    outputs = ("logits",)
    reads_cls = True

    def __init__(self, config: TrainingConfig, architecture: Architecture, start: Optional[InitialWeights]):
        super().__init__(config, architecture, start)
        self.benchmark = select_benchmark(config.glue_task, config.classification_data, start)
        is_known = config.glue_task is not None or config.classification_data is not None
        self.text_counts = (1 + self.benchmark.is_pair,) if is_known else (1, 2)
        count = f"{' or '.join(map(str, self.text_counts))} text{'s' * (self.text_counts[-1] > 1)}"
        self.takes = f"{self.benchmark.name if is_known else 'the model'} takes {count}"
        if config.classification_data is not None:
            self.label_names = [label.name for label in self.benchmark.labels]
            self.text_columns = config.classification_data.text
        self.labels = self.benchmark.classes
        self._lesson: Any = None  # what is learned of samples besides their labels
        if config.distillation.teacher is not None:  # room: teacher
            self._lesson = TeacherLesson(config, self.benchmark)  # room: teacher
        self.objective = self._objective()
        if not config.generated_dataset:
            self.head_rows = class_rows(start, self.benchmark, config.do_training)
        # The scores of a cross-encoder are between 0 and 1; training fits its outputs themselves.
        self._is_squashed = False
        if self.benchmark.is_regression and isinstance(start, Pretrained) and CLASSIFIER in start.weights:
            has_sigmoid = output_activation(start) == SIGMOID
            self._is_squashed = has_sigmoid and not config.do_training
            if has_sigmoid and config.do_training:
                logger.warning("%s has a sigmoid after its output, which the training leaves out", start.origin)
        self._validation: List[Tuple[Split, Examples]] = []
        self._test: List[Tuple[Split, Examples]] = []
        if not config.generated_dataset:
            if config.do_validation:
                self._validation = self._held_out(self.benchmark.validation, with_labels=True)
            if config.do_test:
                self._test = self._held_out(self.benchmark.test, with_labels=False)

    def features(self, length: int, labels: bool = True) -> FeatureSpec:
        more = () if self._lesson is None else self._lesson.features(self.labels)
        rows, is_multi_label = self._architecture.vocab_size, self.benchmark.is_multi_label
        return classification_features(length, rows, self.labels, labels, is_multi_label, more)

    def open_data(self) -> SampleReader:
        config, benchmark = self._config, self.benchmark
        if config.generated_dataset:
            return self.generated()
        examples = self._read(benchmark.train, with_labels=True)
        assert examples is not None and examples.labels is not None, "training data is not optional"
        self.objective = self._objective(examples.labels)
        for _, held_out in self._validation if benchmark.benchmark == USER else ():
            report_copies(examples, held_out)
        texts, targets = examples.texts, {"labels": examples.labels}
        description: Dict[str, Any] = {}
        if self._lesson is not None:
            texts, targets, description = self._lesson.samples(examples)
        features = self.encoded(texts)
        report_truncation(examples.origin, len(texts), features, config.max_seq_length)
        self._description = {**self._describe(examples, features), **description}
        samples = {**features.arrays, **targets}
        return self.rows(ArrayReader(self.features(config.max_seq_length), samples), features.lengths)

    def _objective(self, labels: Optional[np.ndarray] = None) -> Objective:
        """Return the losses, with the weights of the classes that follow from the ``labels`` to train on."""
        config, data = self._config, self._config.classification_data
        objective: LabelObjective = RegressionObjective()
        if self.benchmark.is_multi_label:
            objective = MultiLabelObjective()
        elif not self.benchmark.is_regression:
            weights: Sequence[float] = ()
            if data is not None and data.class_weights == "balanced" and labels is not None:
                weights = balanced_weights(labels, self.labels)
            objective = ClassificationObjective(config.show_accuracy, weights, data.label_smoothing if data else 0.0)
        return objective if self._lesson is None else self._lesson.objective(objective)

    @staticmethod
    def metrics(config: TrainingConfig) -> Sequence[str]:
        """Return the benchmark's scores on each of its validation sets."""
        benchmark = select_benchmark(config.glue_task, config.classification_data)
        return [score_name(metric, split) for split in benchmark.validation for metric in benchmark.metrics]

    def evaluate(self, predict: Predictor, folder: Optional[Path]) -> Dict[str, float]:
        """Score every validation set, and write predictions for every test set in the leaderboard's format."""
        scores: Dict[str, float] = {}
        baseline: Dict[str, float] = {}
        mistakes: List[Mistakes] = []
        for split, examples in self._validation:
            logits = self.logits(predict, examples.texts, examples.origin if folder is not None else None)
            predictions = decode_predictions(self.benchmark, logits)
            assert examples.labels is not None, "validation data has labels"
            values = compute_scores(self.benchmark, predictions, examples.labels)
            scores.update({score_name(metric, split): value for metric, value in values.items()})
            if folder is None:
                continue
            logger.info("validation on %s samples of %s", f"{len(examples.texts):,}", examples.origin)
            mistakes.append(self._mistakes(examples, logits))
            constant = constant_predictions(self.benchmark, examples.labels)
            values = compute_scores(self.benchmark, constant, examples.labels)
            baseline.update({score_name(metric, split): value for metric, value in values.items()})
            if not (self.benchmark.is_regression or self.benchmark.is_multi_label):
                shown = ", ".join(f"{metric} {value:.4f}" for metric, value in values.items())
                logger.info("  always %s, the most frequent class: %s", self.benchmark.labels[constant[0]].name, shown)
        if folder is None:
            return scores
        write_baseline(folder, baseline)
        write_mistakes(folder, mistakes)
        for split, examples in self._test:
            path = folder / SUBMISSION_FOLDER / split.submission
            predictions = decode_predictions(self.benchmark, self.logits(predict, examples.texts, examples.origin))
            write_submission(path, self.benchmark, examples.ids, predictions)
            logger.info("predictions for %s samples of %s: %s", f"{len(examples.texts):,}", examples.origin, path)
        return scores

    def summary(self, metrics: Dict[str, float], dataset: Dict[str, Any]) -> List[str]:
        """Compare the loss with baselines: the labels' frequencies, and the uniform distribution."""
        if self._lesson is not None:
            return []  # the baselines are losses of labels alone
        lines = [f"{metrics[LOSS]:8.4f}: the loss of the last logging period, compared with"]
        if "label_variance" in dataset:
            return [*lines, f"{dataset['label_variance']:8.4f}: always predicting the mean of the scores"]
        if "label_entropy_nats" in dataset:
            lines.append(f"{dataset['label_entropy_nats']:8.4f}: class frequencies only (entropy)")
        classes = 2 if self.benchmark.is_multi_label else self.benchmark.classes  # with or without a label
        return [*lines, f"{math.log(classes):8.4f}: uniform baseline, ln({classes})"]

    def logits(self, predict: Predict, texts: Sequence[Tuple[str, ...]], origin: Optional[str] = None) -> np.ndarray:
        """Return the model's outputs for texts, ``(N, classes)``; log what was cut if the texts' origin is given."""
        return self.logits_of(predict, self.inputs(predict, texts, origin))

    def logits_of(self, predict: Predict, inputs: Features) -> np.ndarray:
        """Return what :meth:`logits` does for encoded texts."""
        logits = self.outputs_of(predict, inputs)["logits"]
        return np.asarray(expit(logits)) if self._is_squashed else logits

    def answers(self, predict: Predict, texts: Sequence[Tuple[str, ...]]) -> List[Any]:
        """Return for each sample its classes or labels and their probabilities, the likeliest first; or its score."""
        logits = self.logits(predict, texts)
        if self.benchmark.is_regression:
            scores: List[float] = np.clip(logits[:, 0], *self.benchmark.score_range).tolist()
            return scores
        probabilities = self._probabilities(logits)
        names = [label.name for label in self.benchmark.labels]
        orders = np.argsort(-logits, axis=-1, kind="stable").tolist()
        return [
            Answer(Choice(names[number], row[number]) for number in order)
            for order, row in zip(orders, probabilities.tolist())
        ]

    def lines(self, answer: Any) -> List[str]:
        """Return lines with the likeliest classes and their probabilities, or with the score."""
        if self.benchmark.is_regression:
            low, high = self.benchmark.score_range
            return [f"{answer:.4g}" if math.isinf(high) else f"{answer:.2f} on a scale from {low:g} to {high:g}"]
        shown = answer[: max(MOST_SHOWN, sum(share > 0.5 for _, share in answer))]
        width = max(len(name) for name, _ in shown)
        return [f"{name:<{width}}  {share:7.2%}  {'█' * round(share * BAR_WIDTH)}".rstrip() for name, share in shown]

    @property
    def predicted_columns(self) -> Tuple[str, ...]:
        """The columns that predictions add to a table."""
        if self.benchmark.is_regression:
            return ("prediction",)
        best = () if self.benchmark.is_multi_label else ("probability",)
        return ("prediction", *best, *(f"probability_{label.name}" for label in self.benchmark.labels))

    def row(self, answer: Any) -> Dict[str, Any]:
        """Return the class or labels of a sample and the probabilities of all, or its score, by column."""
        if self.benchmark.is_regression:
            return {"prediction": float(f"{answer:.6g}")}
        shares = {name: round(share, 6) for name, share in answer}
        names = [label.name for label in self.benchmark.labels]
        best: Tuple[Any, ...] = answer[0].label, shares[answer[0].label]
        if self.benchmark.is_multi_label:
            chosen = {name for name, share in answer if share > 0.5}
            best = (joined_labels(self.benchmark, np.array([name in chosen for name in names])),)
        return dict(zip(self.predicted_columns, (*best, *(shares[name] for name in names))))

    def _probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Return the probabilities of classes or labels, ``(N, C)``."""
        return expit(logits) if self.benchmark.is_multi_label else softmax(logits, axis=-1)

    def _mistakes(self, examples: Examples, logits: np.ndarray) -> Mistakes:
        """Return what went wrong on a validation set, for the report."""
        assert examples.labels is not None
        if self.benchmark.is_regression:
            return number_mistakes(examples.origin, examples.texts, examples.labels, logits[:, 0])
        names = [label.name for label in self.benchmark.labels]
        described = label_mistakes if self.benchmark.is_multi_label else class_mistakes
        return described(examples.origin, names, examples.texts, examples.labels, self._probabilities(logits))

    def _read(self, split: Split, with_labels: bool) -> Optional[Examples]:
        return read_split(self.benchmark, split, self._config.data_folder, with_labels)

    def _held_out(self, splits: Sequence[Split], with_labels: bool) -> List[Tuple[Split, Examples]]:
        read = [(split, self._read(split, with_labels)) for split in splits]
        return [(split, examples) for split, examples in read if examples is not None]

    def _describe(self, examples: Examples, features: Features) -> Dict[str, Any]:
        assert examples.labels is not None
        return {
            "records": len(examples.texts),
            **held_out_count([len(examples.texts) for _, examples in self._validation]),
            "source": examples.origin,
            "benchmark": f"{self.benchmark.benchmark.upper()} {self.benchmark.name}",
            **label_description(self.benchmark, examples.labels),
            "samples_cut": features.truncated,
            "unknown_pieces_share": features.unknown,
            **self.vocabulary_description(),
        }


def select_benchmark(
    glue_task: Optional[str], data: Optional[ClassificationData], start: Optional[InitialWeights] = None
) -> BenchmarkTask:
    """Return the benchmark task, or that of own files; if neither is known, one with the classes of the model."""
    if glue_task is not None:
        return BENCHMARK_TASKS[glue_task]
    data = data or ClassificationData()
    if data.classes is None and not data.regression:
        classes, separator = ["0", "1"], data.label_separator  # of random data
        if isinstance(start, Pretrained) and CLASSIFIER in start.weights:
            classes = output_names(start)
            are_labels = len(classes) > 1 and output_activation(start) == SIGMOID
            if start.settings.get("problem_type") == MULTI_LABEL or are_labels:
                separator = separator or USUAL_SEPARATOR
        regression = len(classes) == 1 and not separator
        data = data.model_copy(update={"classes": classes, "regression": regression, "label_separator": separator})
    return user_task(**data.without_loss())


def score_name(metric: str, split: Split) -> str:
    """Return the name of a score: ``accuracy``, or ``accuracy_mismatched`` if there are several validation sets."""
    return f"{metric}_{split.title}" if split.title else metric


def compute_scores(benchmark: BenchmarkTask, predictions: np.ndarray, labels: np.ndarray) -> Dict[str, float]:
    return {metric: METRICS[metric](predictions, labels) for metric in benchmark.metrics}


def label_description(benchmark: BenchmarkTask, labels: np.ndarray) -> Dict[str, Any]:
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


TASK = Classification
