"""Pre-training: masked language model and next-sentence prediction (Devlin et al. 2019, section 3.1)."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from data_utils.records.arrays import GeneratedReader
from data_utils.records.features import FeatureSpec, packed_pretraining_features, pretraining_features
from data_utils.records.manifest import VALIDATION_FOLDER, Manifest, load_manifest
from data_utils.records.packs import generated_packs
from data_utils.records.pipeline import SampleReader
from data_utils.records.reader import RecordReader
from execution.interface import Platform
from model.architecture import Architecture
from model.losses import PretrainingObjective
from model.tasks import PRETRAINING
from settings.schema import TrainingConfig
from tasks import write_baseline
from training.building import build_model
from training.initial_weights import InitialWeights
from training.prediction import Predictor
from training.task import BuiltModel, SetInitialWeights
from utilities.errors import UserError
from utilities.metric_names import MLM_LOSS

HELD_OUT_BASELINE = "held_out_context_free"  # in the data's description: :class:`ContextFree` of the held-out records

logger = logging.getLogger(__name__)


class Pretraining:
    """The task of ``run_pretraining.py``; see :class:`training.task.Task`."""

    name = PRETRAINING
    labels = 2
    head_rows = None

    def __init__(self, config: TrainingConfig, architecture: Architecture, start: Optional[InitialWeights]):
        self._config = config
        self._architecture = architecture
        self._vocabulary = architecture.vocab_size
        self.outputs = ("masked_lm", "next_sentence") if config.use_next_sentence else ("masked_lm",)
        self._held_out = self._open_held_out()

    @staticmethod
    def metrics(config: TrainingConfig) -> Sequence[str]:
        return PretrainingObjective(config.show_accuracy, next_sentence=config.use_next_sentence).terms

    def open_data(self) -> SampleReader:
        if self._config.generated_dataset:
            return self._generated()
        assert self._config.dataset_dir is not None, "the rules ask for dataset_dir or generated_dataset"
        records = self._records(self._config.dataset_dir)
        if self._held_out is not None:
            refuse_other_vocabulary(records.manifest, self._held_out.manifest)
        return records

    def build(self, platform: Platform, set_initial_weights: SetInitialWeights) -> BuiltModel:
        config = self._config
        self.objective = PretrainingObjective(
            config.show_accuracy, platform.cross_entropy, next_sentence=config.use_next_sentence
        )
        if self._held_out is not None and not platform.measures_losses:
            logger.warning(
                "IPUs do not measure losses on held-out text; evaluate the run's checkpoints on a CPU or GPU"
            )
            self._held_out = None
        shapes = self._features().shapes
        return build_model(config, self.name, self._architecture, shapes, self.outputs, platform, set_initial_weights)

    def dataset_description(self, reader: SampleReader) -> Dict[str, Any]:
        """Return records, vocabulary, and the entropy of the corpus' word pieces if the manifest has it."""
        description: Dict[str, Any] = {"records": reader.count, "vocab_size": self._vocabulary}
        if self._held_out is not None:
            description["records_held_out"] = self._held_out.count
            description[HELD_OUT_BASELINE] = context_free(self._held_out.manifest)
        manifest = getattr(reader, "manifest", None)
        if manifest is not None:
            description.update(
                settings=dict(manifest.settings),
                totals=dict(manifest.totals),
                unigram_entropy_nats=manifest.unigram_entropy_nats,
                context_free=context_free(manifest),
                random_next_share=manifest.random_next_share,
                vocabulary=dict(manifest.vocabulary),
            )
        return description

    def evaluate(self, predict: Predictor, folder: Optional[Path]) -> Dict[str, float]:
        """Return losses and accuracies on held-out text, with the same masks each time; empty if there is none."""
        if self._held_out is None:
            return {}
        means = predict.means(self._held_out)
        baseline = context_free(self._held_out.manifest)
        if folder is not None and baseline is not None:
            logger.info("%8.4f nats: the masked-LM loss on held-out text, compared with", means[MLM_LOSS])
            logger.info(baseline_line(baseline))
            write_baseline(folder, {MLM_LOSS: baseline["loss_nats"]})
        return {name: means[name] for name in self.objective.terms}

    def summary(self, metrics: Dict[str, float], dataset: Dict[str, Any]) -> List[str]:
        """Compare the masked-LM loss with its baselines."""
        entropy, baseline = dataset.get("unigram_entropy_nats"), dataset.get("context_free")
        lines = [f"{metrics[MLM_LOSS]:8.4f} nats: the masked-LM loss of the last logging period, compared with"]
        if baseline is not None:
            lines.append(baseline_line(baseline))
        if entropy is not None:
            lines.append(f"{entropy:8.4f} nats: unigram baseline (entropy of the word pieces)")
        return [*lines, f"{math.log(self._vocabulary):8.4f} nats: uniform baseline, ln({self._vocabulary:,})"]

    def _open_held_out(self) -> Optional[RecordReader]:
        """Open ``validation_dir``, or else the held-out records in ``dataset_dir``; None without either."""
        config = self._config
        if (config.generated_dataset and config.do_training) or not config.do_validation:
            return None
        if config.validation_dir is not None:
            return self._records(config.validation_dir)
        assert config.dataset_dir is not None, "the rules ask for it"
        folder = Path(config.dataset_dir) / VALIDATION_FOLDER
        if folder.is_dir():
            return self._records(str(folder))
        if config.do_training and config.evaluation.every is None:
            return None
        setting = "evaluation.every" if config.do_training else "do_training false"
        raise UserError(
            f"{setting}: there is no held-out text in {folder}; prepare the data with --validation-fraction, or set"
            " validation_dir"
        )

    def _records(self, folder: str) -> RecordReader:
        config, data = self._config, self._config.data
        manifest = load_manifest(Path(folder))
        if config.use_next_sentence and manifest is not None and not manifest.has_next_sentences:
            raise UserError(
                f"use_next_sentence is true, but {manifest.path} says that the rows have no next sentences; set it to"
                " false (--use-next-sentence false), or prepare the data without --no-next-sentence"
            )
        return RecordReader(folder, self._features(), data.verify_checksums, data.on_corrupt, data.max_corrupt_records)

    def _features(self) -> FeatureSpec:
        config, sequences = self._config, self._config.packing.max_sequences_per_pack
        tables = self._vocabulary, self._architecture.type_vocab_size
        if sequences is None:
            return pretraining_features(config.max_seq_length, config.predictions_per_row, *tables)
        return packed_pretraining_features(config.max_seq_length, config.predictions_per_row, sequences, *tables)

    def _generated(self) -> SampleReader:
        config, sequences = self._config, self._config.packing.max_sequences_per_pack
        if sequences is None:
            return GeneratedReader(self._features(), config.seed)
        sizes = config.max_seq_length, config.predictions_per_row, sequences
        return generated_packs(
            *sizes, self._vocabulary, config.seed, type_vocab_size=self._architecture.type_vocab_size
        )


def context_free(manifest: Optional[Manifest]) -> Optional[Dict[str, float]]:
    """Return what predictions without context reach on a data set; None if it is not known."""
    return manifest.context_free._asdict() if manifest is not None and manifest.context_free is not None else None


def baseline_line(baseline: Mapping[str, float]) -> str:
    return f"{baseline['loss_nats']:8.4f} nats: context-free baseline (frequencies of the pieces alone)"


def refuse_other_vocabulary(training: Optional[Manifest], held_out: Optional[Manifest]) -> None:
    """Refuse held-out text in word pieces that the model does not learn, if both manifests name a vocabulary."""
    if training is None or held_out is None:
        return
    ours, theirs = training.vocabulary.get("sha256"), held_out.vocabulary.get("sha256")
    if None not in (ours, theirs) and ours != theirs:
        raise UserError(
            f"validation_dir: {held_out.path} names another vocabulary (SHA-256) than {training.path}; prepare the"
            f" held-out text with --vocab-file {training.path.parent}"
        )


TASK = Pretraining
