"""What a row of a pre-training batch is: one padded sequence, or a pack of several."""

from __future__ import annotations

from typing import Dict, List, Protocol, Tuple, Type

from data_utils.records.features import FeatureSpec, packed_pretraining_features, pretraining_features
from data_utils.records.generated import GeneratedReader
from data_utils.records.packs import generated_packs
from data_utils.records.pipeline import SampleReader
from model.bert import pretraining_shapes
from model.blocks import Block
from model.losses import PackedPretrainingObjective, PretrainingObjective
from model.packing import packed, packed_pretraining_shapes
from utilities.config.figures import is_packed
from utilities.config.schema import TrainingConfig


class Rows(Protocol):
    """Records, random data, model and losses for one kind of row.

    ``vocab_size`` is that of the model.
    """

    objective: Type[PretrainingObjective]

    def spec(self, vocab_size: int) -> FeatureSpec:
        """What a record holds."""

    def generated(self, vocab_size: int, seed: int) -> SampleReader:
        """Random rows."""

    def shapes(self) -> Dict[str, Tuple[int, ...]]:
        """Of the model's inputs for one row."""

    def blocks(self, blocks: List[Block]) -> List[Block]:
        """The blocks of one sequence a row, made fit."""


class Sequences:
    """One sequence a row, padded to ``max_seq_length``."""

    objective = PretrainingObjective

    def __init__(self, config: TrainingConfig):
        self._sizes = (config.max_seq_length, config.max_predictions_per_seq)

    def spec(self, vocab_size: int) -> FeatureSpec:
        return pretraining_features(*self._sizes, vocab_size)

    def generated(self, vocab_size: int, seed: int) -> SampleReader:
        return GeneratedReader(self.spec(vocab_size), seed)

    def shapes(self) -> Dict[str, Tuple[int, ...]]:
        return pretraining_shapes(*self._sizes)

    def blocks(self, blocks: List[Block]) -> List[Block]:
        return blocks


class Packs:
    """Up to ``packing.max_sequences_per_pack`` sequences a row."""

    objective = PackedPretrainingObjective

    def __init__(self, config: TrainingConfig):
        predictions, sequences = config.packing.max_predictions_per_pack, config.packing.max_sequences_per_pack
        assert predictions is not None and sequences is not None, "derived where the config has none"
        self._sizes = (config.max_seq_length, predictions, sequences)

    def spec(self, vocab_size: int) -> FeatureSpec:
        return packed_pretraining_features(*self._sizes, vocab_size)

    def generated(self, vocab_size: int, seed: int) -> SampleReader:
        return generated_packs(*self._sizes, vocab_size, seed)

    def shapes(self) -> Dict[str, Tuple[int, ...]]:
        return packed_pretraining_shapes(*self._sizes)

    def blocks(self, blocks: List[Block]) -> List[Block]:
        return packed(blocks)


def rows_of(config: TrainingConfig) -> Rows:
    """As the section ``packing`` says."""
    return Packs(config) if is_packed(config) else Sequences(config)
