"""Specifies the rows of a task's data: name, length, meaning and range of every feature.

Reading, validation, generated data and the model's inputs follow from such a specification. A row is a pack of up to N
sequences; a padded row is a pack of one, without the features that locate its sequences.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Dict, Mapping, Optional, Tuple

# Kinds: the meaning of a feature's numbers, which determines generated values and how packs are assembled.
TOKENS = "tokens"  # word piece ids of the row, [CLS] first
TARGETS = "targets"  # word piece ids to be predicted
MASK = "mask"  # 1 for a real token, 0 for padding
SEQUENCE_IDS = "sequence ids"  # 1, 2, … for the tokens of the first, second … sequence of a pack, 0 for padding
SEGMENTS = "segments"  # 0 for the first sentence, 1 for the second
TOKEN_POSITIONS = "token positions"  # positions in the row, distinct in a record
POSITION_IDS = "position ids"  # positions within a sequence of a pack, from 0
WEIGHTS = "weights"  # real numbers of at least 0
LABEL = "label"  # a class for each sequence, or 0 or 1 for each of several labels
TOKEN_INDEX = "token index"  # a position in the row for each sequence, to be predicted
SCORE = "score"  # a real number for each sequence, to be predicted
COMPUTED = "computed"  # real numbers for each sequence that another model has computed
TAGS = "tags"  # a class for each token, counted from 1; 0 if none is to be predicted
PER_TOKEN = (TOKENS, MASK, SEQUENCE_IDS, SEGMENTS, POSITION_IDS, TAGS)  # one number for each token of the row

# Formats of manifests.
SEQUENCES_FORMAT, PACKS_FORMAT = "bert-pretraining", "packed-pretraining"
PACKING_COMMAND = "python -m data_utils.packing"

SHORTEST_SAMPLE = 3  # tokens: [CLS] a [SEP]
MAX_SEQ_LENGTH = 1 << 15  # tokens of a row that data preparation and packing make
ANY_VOCABULARY = 1 << 31  # limit of the ids of a vocabulary that is not known


@dataclass(frozen=True)
class Feature:
    """One feature of a row, with ``length`` numbers of a ``kind``, a constant of this module."""

    name: str
    length: int
    kind: str
    below: Optional[int] = None  # integers must lie in [0, below); None for real numbers, which are float32
    length_setting: Optional[str] = None  # config field that determines the length
    range_setting: Optional[str] = None  # config field that determines ``below``

    @property
    def dtype(self) -> str:
        return "float32" if self.kind in (WEIGHTS, SCORE, COMPUTED) else "int32"


@dataclass(frozen=True)
class FeatureSpec:
    """All features of a task's rows, and what the data set's manifest must have.

    The ``manifest_settings`` are config fields with the required value of the manifest's setting with the last part of
    that name.
    """

    features: Tuple[Feature, ...]
    vocab_size: int
    manifest_format: str = ""  # empty for samples that are not read from records
    manifest_settings: Mapping[str, int] = field(default_factory=dict)
    other_formats: Mapping[str, str] = field(default_factory=dict)  # that a data set may have → advice
    packed: bool = False

    @property
    def shapes(self) -> Dict[str, Tuple[int, ...]]:
        """The shape of each feature of one row, by name."""
        return {feature.name: (feature.length,) for feature in self.features}


def pretraining_features(
    max_seq_length: int, max_predictions_per_seq: int, vocab_size: int, type_vocab_size: int = 2
) -> FeatureSpec:
    """Return the features of masked-LM and next-sentence records of the published scripts; lengths include padding."""
    length, predictions = "max_seq_length", "max_predictions_per_seq"
    words = "bert_config.vocab_size"

    def sequence(name: str, kind: str, below: int, range_setting: Optional[str] = None) -> Feature:
        return Feature(name, max_seq_length, kind, below, length, range_setting)

    def masked(name: str, kind: str, below: Optional[int], range_setting: Optional[str] = None) -> Feature:
        return Feature(name, max_predictions_per_seq, kind, below, predictions, range_setting)

    return FeatureSpec(
        features=(
            sequence("input_ids", TOKENS, vocab_size, words),
            sequence("input_mask", MASK, 2),
            sequence("segment_ids", SEGMENTS, type_vocab_size, "bert_config.type_vocab_size"),
            masked("masked_lm_positions", TOKEN_POSITIONS, max_seq_length),
            masked("masked_lm_ids", TARGETS, vocab_size, words),
            masked("masked_lm_weights", WEIGHTS, None),
            Feature("next_sentence_labels", 1, LABEL, 2),
        ),
        vocab_size=vocab_size,
        manifest_format=SEQUENCES_FORMAT,
        manifest_settings={length: max_seq_length, predictions: max_predictions_per_seq},
        other_formats={PACKS_FORMAT: "set packing.max_sequences_per_pack to train on packs"},
    )


def packed_pretraining_features(
    max_seq_length: int,
    max_predictions_per_pack: int,
    max_sequences_per_pack: int,
    vocab_size: int,
    type_vocab_size: int = 2,
) -> FeatureSpec:
    """Return the features of the packs that ``data_utils.packing`` writes (arXiv 2107.02027, section 3.2)."""
    predictions, sequences = "packing.max_predictions_per_pack", "packing.max_sequences_per_pack"
    single = pretraining_features(max_seq_length, max_predictions_per_pack, vocab_size, type_vocab_size)
    features = []
    for feature in single.features:
        if feature.length_setting == "max_predictions_per_seq":
            feature = replace(feature, length_setting=predictions)
        if feature.kind == LABEL:
            feature = replace(feature, length=max_sequences_per_pack, length_setting=sequences)
        features.append(_as_in_packs(feature, max_sequences_per_pack))
    features += [
        Feature("position_ids", max_seq_length, POSITION_IDS, max_seq_length, "max_seq_length"),
        Feature("next_sentence_positions", max_sequences_per_pack, TOKEN_POSITIONS, max_seq_length, sequences),
        Feature("next_sentence_weights", max_sequences_per_pack, WEIGHTS, None, sequences),
    ]
    sizes = {predictions: max_predictions_per_pack, sequences: max_sequences_per_pack}
    return FeatureSpec(
        features=tuple(features),
        vocab_size=vocab_size,
        manifest_format=PACKS_FORMAT,
        manifest_settings={"max_seq_length": max_seq_length, **sizes},
        other_formats={SEQUENCES_FORMAT: f"leave {sequences} unset, or pack the data set: {PACKING_COMMAND}"},
        packed=True,
    )


def fine_tuning_features(max_seq_length: int, vocab_size: int, *labels: Feature) -> FeatureSpec:
    """Return the features of fine-tuning samples, one per row: the tokens and the labels; none for prediction."""
    tokens = (
        Feature("input_ids", max_seq_length, TOKENS, vocab_size),
        Feature("input_mask", max_seq_length, MASK, 2),
        Feature("segment_ids", max_seq_length, SEGMENTS, 2),
    )
    return FeatureSpec(tokens + labels, vocab_size)


def in_packs(single: FeatureSpec, max_sequences_per_pack: int, cls_positions: bool = False) -> FeatureSpec:
    """Return the features of packs of fine-tuning samples, of which the model may read the [CLS] of each."""
    sequences, length = max_sequences_per_pack, single.features[0].length
    tokens = [_as_in_packs(feature, sequences) for feature in single.features if feature.kind in PER_TOKEN]
    others = [feature for feature in single.features if feature.kind not in PER_TOKEN]
    labels = [replace(feature, length=sequences * feature.length) for feature in others]
    features = [*tokens, Feature("position_ids", length, POSITION_IDS, length)]
    if cls_positions:
        features.append(Feature("cls_positions", sequences, TOKEN_POSITIONS, length))
    if labels or any(feature.kind == TAGS for feature in tokens):
        features += [*labels, Feature("sequence_weights", sequences, WEIGHTS)]
    return replace(single, features=tuple(features), packed=True)


def _as_in_packs(feature: Feature, sequences: int) -> Feature:
    """Return a feature in the form that it has in packs, where the mask numbers the sequences."""
    return replace(feature, kind=SEQUENCE_IDS, below=sequences + 1) if feature.kind == MASK else feature
