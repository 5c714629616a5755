"""Classification and regression of sentences and pairs: GLUE and CLUE (Devlin et al. 2019, section 4.1)."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from data_utils.classification.benchmarks import TASKS
from data_utils.classification.features import Features, text_features
from data_utils.classification.metrics import METRICS
from data_utils.classification.reading import Examples, read_split
from data_utils.classification.submission import predicted, write_submission
from data_utils.classification.tasks import BenchmarkTask, Split
from data_utils.records.pipeline import SampleReader
from data_utils.tokenizer import load_tokenizer
from execution.interface import Platform
from model.architecture import CLASSIFICATION, Architecture
from model.conversion import convert_classification
from model.huggingface import untrained_classifier
from model.losses import LOSS
from model.unconverted import unconverted_classification
from utilities.config.schema import TrainingConfig
from utilities.training.building import Converted, build_model, source_scope, tail_blocks
from utilities.training.class_order import class_order
from utilities.training.classification_rows import sample_rows_of
from utilities.training.start import Start
from utilities.training.task import BuiltModel, Fill, Predict
from utilities.training.vocabulary import Wording, wording_of

logger = logging.getLogger(__name__)

SUBMISSION_FOLDER = "submission"
MUCH_UNKNOWN = 0.1  # share of [UNK] from which on the vocabulary is probably of another language


class Held(NamedTuple):
    """A split that is evaluated after training."""

    split: Split
    examples: Examples


class Classification:
    """The task of ``run_seq_classification.py``; see :class:`utilities.training.task.Task`.

    Raises:
        UserError: no vocabulary, data to evaluate on that cannot be read, or nothing to evaluate: said before training
            begins.
    """

    name = CLASSIFICATION
    outputs = ("logits",)

    def __init__(self, config: TrainingConfig, architecture: Architecture, start: Optional[Start]):
        assert config.glue_task is not None, "the rules ask for glue_task in classification"
        self._config = config
        self._architecture = architecture
        self.benchmark: BenchmarkTask = TASKS[config.glue_task]
        self._rows = sample_rows_of(config, architecture.vocab_size, self.benchmark.classes)
        self.objective = self._rows.objective
        self._order = None if config.do_training else class_order(start, self.benchmark)
        self._facts: Dict[str, Any] = {}
        self._wording: Optional[Wording] = None
        self._validation: List[Held] = []
        self._test: List[Held] = []
        if not config.generated_dataset:
            self._wording = wording_of(config, architecture, start)
            if config.do_validation:
                self._validation = self._held(self.benchmark.validation, with_labels=True)
            if config.do_test:
                self._test = self._held(self.benchmark.test, with_labels=False)

    @property
    def wording(self) -> Optional[Wording]:
        """The vocabulary and case that belong to the trained model; None with generated data."""
        return self._wording

    def open_data(self) -> SampleReader:
        """The training samples, or generated ones."""
        config, benchmark = self._config, self.benchmark
        if config.generated_dataset:
            reader = self._rows.generated(config.seed)
            self._facts = {"records": reader.count}
            return reader
        examples = self._read(benchmark.train, with_labels=True)
        assert examples is not None, "training data is not optional"
        features = self.features(examples.texts)
        tell_losses(examples.origin, len(examples.texts), features, config.max_seq_length)
        self._facts = self._describe(examples, features)
        return self._rows.reader(features.arrays, examples.labels)

    def build(self, platform: Platform, fill: Fill) -> BuiltModel:
        """Hugging Face's BERT with a classifier, converted unless ``replace_layers`` is false."""
        config, architecture = self._config, self._architecture
        with source_scope(config, platform):
            source = untrained_classifier(architecture, self.benchmark.classes, config.seed)
        tail = tail_blocks(config, CLASSIFICATION)

        def recipe() -> Converted:
            if config.replace_layers:
                blocks, conversion = convert_classification(source, architecture, platform, tail)
                return self._rows.blocks(blocks), conversion
            return self._rows.blocks(unconverted_classification(source, platform, tail)), None

        return build_model(config, source, recipe, self._rows.shapes(), self.outputs, platform, fill)

    def dataset_facts(self, reader: SampleReader) -> Dict[str, Any]:
        """Samples, how often each class occurs, and what tokenising lost."""
        return self._facts

    def evaluate(self, predict: Predict, folder: Path) -> Dict[str, float]:
        """Scores on every validation set; predictions for every test set, as the leaderboard takes them."""
        scores: Dict[str, float] = {}
        for split, examples in self._validation:
            predictions = self._predictions(predict, examples)
            assert examples.labels is not None, "validation data has labels"
            found = scores_of(self.benchmark, predictions, examples.labels)
            scores.update({name_of(metric, split): value for metric, value in found.items()})
            logger.info("validation on %s samples of %s", f"{len(examples.texts):,}", examples.origin)
            if not self.benchmark.is_regression:
                logger.info("  %s", majority_line(self.benchmark, examples.labels))
        for split, examples in self._test:
            path = folder / SUBMISSION_FOLDER / split.submission
            write_submission(path, self.benchmark, examples.ids, self._predictions(predict, examples))
            logger.info("predictions for %s samples of %s: %s", f"{len(examples.texts):,}", examples.origin, path)
        return scores

    def summary(self, metrics: Dict[str, float], dataset: Dict[str, Any]) -> List[str]:
        """The loss beside that of a model that knows nothing but the labels' frequencies."""
        lines = [f"{metrics[LOSS]:8.4f}: the loss of the last logging period, beside"]
        if "label_variance" in dataset:
            return [*lines, f"{dataset['label_variance']:8.4f}: always the mean of the scores"]
        if "label_entropy_nats" in dataset:
            lines.append(f"{dataset['label_entropy_nats']:8.4f}: knowing only how often each class occurs")
        return [*lines, f"{math.log(self.benchmark.classes):8.4f}: knowing nothing, ln({self.benchmark.classes})"]

    def features(self, texts: Sequence[Tuple[str, ...]]) -> Features:
        """Model inputs of texts, one or two for each sample."""
        assert self._wording is not None, "data that is not generated has a vocabulary"
        tokenizer = load_tokenizer(str(self._wording.vocabulary.path), self._wording.lower_case)
        return text_features(tokenizer, texts, self._config.max_seq_length)

    def logits(self, predict: Predict, texts: Sequence[Tuple[str, ...]]) -> np.ndarray:
        """The model's outputs for texts, ``(N, classes)``, in the order of the task's classes."""
        logits = self._rows.logits(predict, self.features(texts).arrays)
        return logits if self._order is None else logits[:, self._order]

    def _predictions(self, predict: Predict, examples: Examples) -> np.ndarray:
        return predicted(self.benchmark, self.logits(predict, examples.texts))

    def _read(self, split: Split, with_labels: bool) -> Optional[Examples]:
        folder = self._config.dataset_dir
        return read_split(self.benchmark, split, Path(folder) if folder else None, with_labels)

    def _held(self, splits: Sequence[Split], with_labels: bool) -> List[Held]:
        read = [(split, self._read(split, with_labels)) for split in splits]
        return [Held(split, examples) for split, examples in read if examples is not None]

    def _describe(self, examples: Examples, features: Features) -> Dict[str, Any]:
        """What the report says of the training data."""
        assert self._wording is not None and examples.labels is not None
        vocabulary, lower_case = self._wording
        return {
            "records": len(examples.texts),
            "source": examples.origin,
            "benchmark": f"{self.benchmark.benchmark.upper()} {self.benchmark.name}",
            **label_facts(self.benchmark, examples.labels),
            "samples_cut": features.cut,
            "unknown_pieces_share": features.unknown,
            "vocabulary": {"file": str(vocabulary.path), "size": len(vocabulary.pieces), "sha256": vocabulary.sha256},
            "lower_case": lower_case,
        }


def name_of(metric: str, split: Split) -> str:
    """Name of a score: ``accuracy``, or ``accuracy_mismatched`` where there are several validation sets."""
    return f"{metric}_{split.title}" if split.title else metric


def scores_of(benchmark: BenchmarkTask, predictions: np.ndarray, labels: np.ndarray) -> Dict[str, float]:
    """The task's metrics by name."""
    return {metric: METRICS[metric](predictions, labels) for metric in benchmark.metrics}


def majority_line(benchmark: BenchmarkTask, labels: np.ndarray) -> str:
    """What the most frequent class alone would score."""
    majority = int(np.bincount(labels).argmax())
    scores = scores_of(benchmark, np.full_like(labels, majority), labels)
    told = ", ".join(f"{metric} {value:.4f}" for metric, value in scores.items())
    return f"always {benchmark.labels[majority].name}, the most frequent class: {told}"


def label_facts(benchmark: BenchmarkTask, labels: np.ndarray) -> Dict[str, Any]:
    """How often each class occurs and the entropy of that, or mean and variance of the scores."""
    if benchmark.is_regression:
        return {"label_mean": float(np.mean(labels)), "label_variance": float(np.var(labels))}
    counts = np.bincount(labels, minlength=benchmark.classes)
    shares = counts[counts > 0] / counts.sum()
    return {
        "classes": {label.name: int(count) for label, count in zip(benchmark.labels, counts)},
        "label_entropy_nats": float(-np.sum(shares * np.log(shares))),
    }


def tell_losses(origin: str, samples: int, features: Features, max_seq_length: int) -> None:
    """Say what tokenising lost."""
    if features.cut:
        share = features.cut / samples
        longer = f"{features.cut:,} of {samples:,} samples ({share:.1%})"
        logger.info("%s: %s are longer than max_seq_length %d and are cut", origin, longer, max_seq_length)
    if features.unknown > MUCH_UNKNOWN:
        share = f"{features.unknown:.0%}"
        logger.warning("%s: %s of the pieces are unknown; is the vocabulary of this language?", origin, share)
