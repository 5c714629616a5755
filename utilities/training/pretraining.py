"""Pre-training: masked language model and next-sentence prediction (Devlin et al. 2019, section 3.1)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Dict, List, Optional

from data_utils.records.features import pretraining_features
from data_utils.records.generated import GeneratedReader
from data_utils.records.pipeline import SampleReader
from data_utils.records.reader import RecordReader
from execution.interface import Platform
from model.architecture import PRETRAINING, Architecture
from model.bert import pretraining_shapes
from model.conversion import convert_pretraining
from model.huggingface import untrained_bert
from model.losses import MLM_LOSS, PretrainingObjective
from model.unconverted import unconverted_pretraining
from utilities.config.schema import TrainingConfig
from utilities.training.building import Converted, build_model
from utilities.training.start import Start
from utilities.training.task import BuiltModel, Fill, Predict


class Pretraining:
    """The task of ``run_pretraining.py``; see :class:`utilities.training.task.Task`."""

    name = PRETRAINING
    outputs = ("masked_lm", "next_sentence")

    def __init__(self, config: TrainingConfig, architecture: Architecture, start: Optional[Start]):
        self._config = config
        self._architecture = architecture
        self._vocabulary = architecture.vocab_size
        self.objective = PretrainingObjective(accuracies=config.show_accuracy)

    def open_data(self) -> SampleReader:
        """Records of ``dataset_dir``, or generated ones."""
        config = self._config
        spec = pretraining_features(config.max_seq_length, config.max_predictions_per_seq, self._vocabulary)
        if config.generated_dataset:
            return GeneratedReader(spec, config.seed)
        assert config.dataset_dir is not None, "the rules ask for dataset_dir or generated_dataset"
        return RecordReader(config.dataset_dir, spec, config.data.verify_checksums)

    def build(self, platform: Platform, fill: Fill) -> BuiltModel:
        """Hugging Face's BERT, converted unless ``replace_layers`` is false."""
        config, architecture = self._config, self._architecture
        source = untrained_bert(architecture, config.seed)

        def recipe() -> Converted:
            if config.replace_layers:
                return convert_pretraining(source, architecture, platform)
            return unconverted_pretraining(source, platform), None

        shapes = pretraining_shapes(config.max_seq_length, config.max_predictions_per_seq)
        return build_model(config, source, recipe, shapes, self.outputs, platform, fill)

    def dataset_facts(self, reader: SampleReader) -> Dict[str, Any]:
        """Records, vocabulary, and the entropy of the corpus' word pieces where the manifest tells it."""
        facts: Dict[str, Any] = {"records": reader.count, "vocab_size": self._vocabulary}
        manifest = getattr(reader, "manifest", None)
        if manifest is not None:
            facts.update(
                settings=dict(manifest.settings),
                totals=dict(manifest.totals),
                unigram_entropy_nats=manifest.unigram_entropy_nats,
                vocabulary=dict(manifest.vocabulary),
            )
        return facts

    def evaluate(self, predict: Predict, folder: Path) -> Dict[str, float]:
        """Nothing: no text is held out."""
        return {}

    def summary(self, metrics: Dict[str, float], dataset: Dict[str, Any]) -> List[str]:
        """The masked-LM loss beside that of a model that knows nothing, or word frequencies only."""
        pieces = (dataset.get("vocabulary") or {}).get("size") or self._vocabulary
        entropy = dataset.get("unigram_entropy_nats")
        lines = [f"{metrics[MLM_LOSS]:8.4f} nats: the masked-LM loss of the last logging period, beside"]
        if entropy is not None:
            lines.append(f"{entropy:8.4f} nats: knowing only how often each word piece occurs (unigram entropy)")
        return [*lines, f"{math.log(pieces):8.4f} nats: knowing nothing, ln({pieces:,})"]
