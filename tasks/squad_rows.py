"""What a row of a SQuAD batch is: one padded window, or a pack of several."""

from __future__ import annotations

from typing import Dict, List, Mapping, Protocol, Tuple, Type

import numpy as np

from data_utils.records.features import packed_squad_features, squad_features
from data_utils.records.generated import POOL_SAMPLES, GeneratedReader
from data_utils.records.packed_reader import PackedReader, pack_samples
from data_utils.records.pipeline import SampleReader
from data_utils.squad.reader import WindowReader
from data_utils.squad.windows import Windows
from data_utils.tokenizer import Vocabulary
from model.bert import token_shapes
from model.blocks import Block
from model.losses import PackedSpanObjective, SpanObjective
from model.packing import packed, packed_token_shapes
from training.task import Predict
from utilities.config.figures import is_packed
from utilities.config.schema import TrainingConfig

SPECIAL_TOKENS = 3  # of a window at least

Logits = Mapping[str, np.ndarray]


class WindowRows(Protocol):
    """Samples, random data, model and losses for one kind of row. ``vocab_size`` is that of the model."""

    objective: Type[SpanObjective]

    def training(self, windows: Windows, vocabulary: Vocabulary, vocab_size: int) -> SampleReader:
        """Windows with their answers."""

    def generated(self, vocab_size: int, seed: int) -> SampleReader:
        """Random rows."""

    def logits(self, predict: Predict, windows: Windows, vocabulary: Vocabulary, vocab_size: int) -> Logits:
        """The model's scores of every window, each ``(windows, max_seq_length)``."""

    def shapes(self) -> Dict[str, Tuple[int, ...]]:
        """Of the model's inputs for one row."""

    def blocks(self, blocks: List[Block]) -> List[Block]:
        """The blocks of one window a row, made fit."""


class SingleWindows:
    """One window a row, padded to ``max_seq_length``."""

    objective = SpanObjective

    def __init__(self, config: TrainingConfig):
        self._length = config.max_seq_length

    def training(self, windows: Windows, vocabulary: Vocabulary, vocab_size: int) -> SampleReader:
        return WindowReader(squad_features(self._length, vocab_size), windows, vocabulary)

    def generated(self, vocab_size: int, seed: int) -> SampleReader:
        return GeneratedReader(squad_features(self._length, vocab_size), seed)

    def logits(self, predict: Predict, windows: Windows, vocabulary: Vocabulary, vocab_size: int) -> Logits:
        return predict(WindowReader(squad_features(self._length, vocab_size, labels=False), windows, vocabulary))

    def shapes(self) -> Dict[str, Tuple[int, ...]]:
        return token_shapes(self._length)

    def blocks(self, blocks: List[Block]) -> List[Block]:
        return blocks


class PackedWindows:
    """Up to ``packing.max_sequences_per_pack`` windows a row."""

    objective = PackedSpanObjective

    def __init__(self, config: TrainingConfig):
        assert config.packing.max_sequences_per_pack is not None
        self._length, self._places = config.max_seq_length, config.packing.max_sequences_per_pack
        self._seed = config.seed

    def training(self, windows: Windows, vocabulary: Vocabulary, vocab_size: int) -> PackedReader:
        single = squad_features(self._length, vocab_size)
        return self._packs(WindowReader(single, windows, vocabulary), windows, vocab_size, labels=True)

    def generated(self, vocab_size: int, seed: int) -> PackedReader:
        places = max(1, min(self._places, self._length // SPECIAL_TOKENS))
        length = self._length // places
        packs = np.arange(POOL_SAMPLES // places * places).reshape(-1, places).tolist()
        windows = GeneratedReader(squad_features(length, vocab_size), seed, len(packs) * places)
        spec = packed_squad_features(self._length, self._places, vocab_size)
        return PackedReader(spec, windows, np.full(windows.count, length), packs)

    def logits(self, predict: Predict, windows: Windows, vocabulary: Vocabulary, vocab_size: int) -> Logits:
        single = squad_features(self._length, vocab_size, labels=False)
        reader = self._packs(WindowReader(single, windows, vocabulary), windows, vocab_size, labels=False)
        return {name: reader.of_tokens(np.asarray(values)) for name, values in predict(reader).items()}

    def shapes(self) -> Dict[str, Tuple[int, ...]]:
        return packed_token_shapes(self._length)

    def blocks(self, blocks: List[Block]) -> List[Block]:
        return packed(blocks)

    def _packs(self, reader: WindowReader, windows: Windows, vocab_size: int, labels: bool) -> PackedReader:
        lengths = windows.tokens()
        packs = pack_samples(lengths, self._length, self._places, self._seed)
        spec = packed_squad_features(self._length, self._places, vocab_size, labels)
        return PackedReader(spec, reader, lengths, packs)


def window_rows_of(config: TrainingConfig) -> WindowRows:
    """As the section ``packing`` says."""
    return PackedWindows(config) if is_packed(config) else SingleWindows(config)
