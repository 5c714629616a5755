"""Pre-training: masked language model and next-sentence prediction (Devlin et al. 2019, section 3.1)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Dict, List, Optional

from data_utils.records.pipeline import SampleReader
from data_utils.records.reader import RecordReader
from execution.interface import Platform
from model.architecture import PRETRAINING, Architecture
from model.conversion import convert_pretraining
from model.huggingface import untrained_bert
from model.losses import MLM_LOSS
from model.unconverted import unconverted_pretraining
from utilities.config.schema import TrainingConfig
from utilities.training.building import Converted, build_model, source_scope
from utilities.training.rows import rows_of
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
        self._rows = rows_of(config)
        self.objective = self._rows.objective(accuracies=config.show_accuracy)

    def open_data(self) -> SampleReader:
        """Records of ``dataset_dir``, or generated ones."""
        config = self._config
        if config.generated_dataset:
            return self._rows.generated(self._vocabulary, config.seed)
        assert config.dataset_dir is not None, "the rules ask for dataset_dir or generated_dataset"
        spec, data = self._rows.spec(self._vocabulary), config.data
        return RecordReader(config.dataset_dir, spec, data.verify_checksums, data.on_corrupt, data.max_corrupt_records)

    def build(self, platform: Platform, fill: Fill) -> BuiltModel:
        """Hugging Face's BERT, converted unless ``replace_layers`` is false."""
        config, architecture = self._config, self._architecture
        self.objective = self._rows.objective(config.show_accuracy, platform.cross_entropy)
        with source_scope(config, platform):
            source = untrained_bert(architecture, config.seed)

        def recipe() -> Converted:
            if config.replace_layers:
                blocks, conversion = convert_pretraining(source, architecture, platform)
                return self._rows.blocks(blocks), conversion
            return self._rows.blocks(unconverted_pretraining(source, platform)), None

        return build_model(config, source, recipe, self._rows.shapes(), self.outputs, platform, fill)

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
