"""What a record of a task holds, as data: names, lengths, meaning and range of every feature.

The reader, the validation and the generated data all follow from such a specification; a new task (spans,
classes, packed sequences) writes one and has its input pipeline.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Mapping, Optional, Tuple

# Kinds: what the numbers of a feature mean. They decide the values of generated data.
TOKENS = "tokens"  # word piece ids of the sequence, [CLS] first
TARGETS = "targets"  # word piece ids to be predicted
MASK = "mask"  # 1 for a real token, 0 for padding
NUMBERS = "numbers"  # 1, 2, … for the tokens of the first, second … sequence of a pack, 0 for padding
SEGMENTS = "segments"  # 0 for the first sentence, 1 for the second
POSITIONS = "positions"  # places in the sequence, distinct in a record
COUNT = "count"  # places in the own sequence of a pack, from 0
WEIGHTS = "weights"  # real numbers of at least 0
LABEL = "label"  # a class
SCORE = "score"  # a real number to be predicted

# Formats of manifests.
SEQUENCES_FORMAT, PACKS_FORMAT = "bert-pretraining", "packed-pretraining"
PACKING_COMMAND = "python -m data_utils.packing"


@dataclass(frozen=True)
class Feature:
    """One feature of a record.

    Attributes:
        name: key in ``tf.train.Example``.
        length: numbers in each record.
        kind: what they mean, one of the constants of this module.
        below: integers must lie in [0, below); None for weights and scores, which are float32.
        length_setting: config field that decides the length, if one does.
        range_setting: config field that decides ``below``, if one does.
    """

    name: str
    length: int
    kind: str
    below: Optional[int] = None
    length_setting: Optional[str] = None
    range_setting: Optional[str] = None

    @property
    def dtype(self) -> str:
        """``float32`` for weights and scores, ``int32`` for everything else."""
        return "float32" if self.kind in (WEIGHTS, SCORE) else "int32"


@dataclass(frozen=True)
class FeatureSpec:
    """All features of a task's records, and what the data set's manifest must agree with.

    Attributes:
        features: the features, in the order of the batch's keys.
        vocab_size: rows of the model's embedding table.
        manifest_format: ``format`` of the manifest.
        manifest_settings: settings of the manifest that must have these values, by the config field that sets each;
            in the manifest they have the last part of that name.
        other_formats: formats that a data set may well have instead → what to do then.
        packed: whether a record is a pack of sequences.
    """

    features: Tuple[Feature, ...]
    vocab_size: int
    manifest_format: str
    manifest_settings: Mapping[str, int] = field(default_factory=dict)
    other_formats: Mapping[str, str] = field(default_factory=dict)
    packed: bool = False


def pretraining_features(
    max_seq_length: int, max_predictions_per_seq: int, vocab_size: int, type_vocab_size: int = 2
) -> FeatureSpec:
    """Records of masked-LM and next-sentence pre-training, as the published data scripts write them.

    Args:
        max_seq_length: word pieces in a sequence, padding included.
        max_predictions_per_seq: masked positions in a sequence, padding included.
        vocab_size: rows of the model's embedding table.
        type_vocab_size: segments that the model knows.

    Example:
        >>> [feature.name for feature in pretraining_features(128, 20, 30522).features][:3]
        ['input_ids', 'input_mask', 'segment_ids']
    """
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
            masked("masked_lm_positions", POSITIONS, max_seq_length),
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
    """Packs of pre-training sequences, as ``data_utils.packing`` writes them (arXiv 2107.02027, section 3.2).

    Args:
        max_seq_length: word pieces in a pack, padding included.
        max_predictions_per_pack: masked positions in a pack, padding included.
        max_sequences_per_pack: sequences in a pack at most.
        vocab_size, type_vocab_size: as in :func:`pretraining_features`.
    """
    predictions, sequences = "packing.max_predictions_per_pack", "packing.max_sequences_per_pack"
    single = pretraining_features(max_seq_length, max_predictions_per_pack, vocab_size, type_vocab_size)
    features = []
    for feature in single.features:
        if feature.kind == MASK:
            feature = replace(feature, kind=NUMBERS, below=max_sequences_per_pack + 1)
        if feature.length_setting == "max_predictions_per_seq":
            feature = replace(feature, length_setting=predictions)
        if feature.kind == LABEL:
            feature = replace(feature, length=max_sequences_per_pack, length_setting=sequences)
        features.append(feature)
    features += [
        Feature("position_ids", max_seq_length, COUNT, max_seq_length, "max_seq_length"),
        Feature("next_sentence_positions", max_sequences_per_pack, POSITIONS, max_seq_length, sequences),
        Feature("next_sentence_weights", max_sequences_per_pack, WEIGHTS, None, sequences),
    ]
    return FeatureSpec(
        features=tuple(features),
        vocab_size=vocab_size,
        manifest_format=PACKS_FORMAT,
        manifest_settings={
            "max_seq_length": max_seq_length,
            predictions: max_predictions_per_pack,
            sequences: max_sequences_per_pack,
        },
        other_formats={SEQUENCES_FORMAT: f"leave {sequences} unset, or pack the data set: {PACKING_COMMAND}"},
        packed=True,
    )


def squad_features(max_seq_length: int, vocab_size: int, labels: bool = True) -> FeatureSpec:
    """Windows of SQuAD: question and part of the context, with the answer's first and last token.

    Args:
        max_seq_length: word pieces in a window, padding included.
        vocab_size: rows of the model's embedding table.
        labels: whether the answers are there; False for prediction.
    """
    answers = tuple(Feature(name, 1, LABEL, max_seq_length) for name in ("start_positions", "end_positions"))
    return _fine_tuning("squad", max_seq_length, vocab_size, answers if labels else ())


def packed_squad_features(
    max_seq_length: int, max_sequences_per_pack: int, vocab_size: int, labels: bool = True
) -> FeatureSpec:
    """Packs of windows of SQuAD, each window with its answer.

    Args:
        max_seq_length: word pieces in a pack, padding included.
        max_sequences_per_pack: windows in a pack at most.
        vocab_size, labels: as in :func:`squad_features`.
    """
    places, below = max_sequences_per_pack, max_seq_length
    names = ("start_positions", "end_positions")
    answers = (*(Feature(name, places, POSITIONS, below) for name in names), _sequence_weights(places))
    return _packed(squad_features(max_seq_length, vocab_size, labels=False), places, answers if labels else ())


def classification_features(max_seq_length: int, vocab_size: int, classes: int, labels: bool = True) -> FeatureSpec:
    """Sentences or pairs of a benchmark task, with their class or, where ``classes`` is 1, their score.

    Args:
        max_seq_length, vocab_size, labels: as in :func:`squad_features`.
        classes: of the task; 1 for a regression.
    """
    label = Feature("labels", 1, SCORE) if classes == 1 else Feature("labels", 1, LABEL, classes)
    return _fine_tuning("classification", max_seq_length, vocab_size, (label,) if labels else ())


def packed_classification_features(
    max_seq_length: int, max_sequences_per_pack: int, vocab_size: int, classes: int, labels: bool = True
) -> FeatureSpec:
    """Packs of the samples of a benchmark task, each with its [CLS] and its class or score.

    Args:
        max_seq_length: word pieces in a pack, padding included.
        max_sequences_per_pack: samples in a pack at most.
        vocab_size, classes, labels: as in :func:`classification_features`.
    """
    places = max_sequences_per_pack
    first = Feature("cls_positions", places, POSITIONS, max_seq_length)
    single = classification_features(max_seq_length, vocab_size, classes)
    targets = (*(replace(f, length=places) for f in single.features if f.name == "labels"), _sequence_weights(places))
    single = classification_features(max_seq_length, vocab_size, classes, labels=False)
    return _packed(single, places, (first, *(targets if labels else ())))


def _sequence_weights(places: int) -> Feature:
    return Feature("sequence_weights", places, WEIGHTS)


def _packed(single: FeatureSpec, places: int, others: Tuple[Feature, ...]) -> FeatureSpec:
    """The tokens of ``single`` as a pack has them, and other features."""
    tokens = [replace(f, kind=NUMBERS, below=places + 1) if f.kind == MASK else f for f in single.features]
    length = tokens[0].length
    return replace(single, features=(*tokens, Feature("position_ids", length, COUNT, length), *others), packed=True)


def _fine_tuning(name: str, max_seq_length: int, vocab_size: int, labels: Tuple[Feature, ...]) -> FeatureSpec:
    tokens = (
        Feature("input_ids", max_seq_length, TOKENS, vocab_size),
        Feature("input_mask", max_seq_length, MASK, 2),
        Feature("segment_ids", max_seq_length, SEGMENTS, 2),
    )
    return FeatureSpec(tokens + labels, vocab_size, manifest_format=name)
