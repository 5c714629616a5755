"""What a user should know of a config that is not wrong: options without effect, and what is seldom meant."""

from __future__ import annotations

from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from model.architecture import Architecture
from model.tasks import PRETRAINING
from settings.architecture import exceeds_padding
from settings.derived import used_length
from settings.fields import value_at
from settings.metadata import manifest_count
from settings.problems import TYPED, with_origin
from settings.published import published_notes, runs_on_ipus
from settings.schema import TrainingConfig


def config_notes(
    config: TrainingConfig, task: str, known: Optional[Architecture], origins: Dict[str, str]
) -> Iterator[str]:
    """Yield the notes, a line each, before values are derived."""

    def shown(name: str) -> str:
        return with_origin(name, value_at(config, name), origins)

    if config.total_num_train_samples is not None and config.num_epochs is not None:
        used, unused = used_length(origins)
        yield f"{shown(unused)} has no effect: {shown(used)} sets the length"
    if task == PRETRAINING and known is not None:
        pieces = manifest_count(config.data_folder, "vocabulary", "size")
        yield from _unused_rows(known.vocab_size, pieces, config.embedding_serialization_factor)
    for option, other in _overruled_options(config, origins):
        yield f"{shown(option)} has no effect: {shown(other)}"
    if config.classification_data is not None:
        yield from _alike_classes(config.classification_data.classes or ())
    yield from published_notes(config.optimizer_opts, runs_on_ipus(config))


def _unused_rows(rows: int, pieces: Optional[int], factor: int) -> List[str]:
    """Note a model's vocabulary that exceeds the data set's by more than padding."""
    if not pieces or not exceeds_padding(rows, pieces, factor):
        return []
    unused = f"the model's vocabulary has {rows:,} rows, that of the data set {pieces:,} pieces"
    return [f"{unused}: the other rows are never used; set bert_config.vocab_size to {pieces}, or use other data"]


def _alike_classes(names: Sequence[str]) -> List[str]:
    """Return a note if classes are called alike but for capitals, as ``True`` and ``true``."""
    plain = [name.strip().lower() for name in names]
    alike = [name for name, other in zip(names, plain) if plain.count(other) > 1]
    if not alike:
        return []
    what = f"classification_data.classes: {', '.join(alike[:8])} differ in capitals only, and are classes of their own"
    return [f"{what}; if they are not, write them alike in the file"]


def _overruled_options(config: TrainingConfig, origins: Dict[str, str]) -> Iterator[Tuple[str, str]]:
    """Yield each option that has no effect, and the one because of which."""
    options, rate = config.optimizer_opts, config.optimizer_opts.learning_rate
    if options.muon_scale is not None and options.name != "Muon":
        yield "optimizer_opts.muon_scale", "optimizer_opts.name"
    if options.decay_rule == "published" and options.name == "Muon":
        yield "optimizer_opts.decay_rule", "optimizer_opts.name"
    if rate.power != 1 and rate.schedule_name != "polynomial":
        yield "optimizer_opts.learning_rate.power", "optimizer_opts.learning_rate.schedule_name"
    # The recipe of a second part inherits it from the first.
    if config.word_vectors and config.weights is not None and origins.get("word_vectors") in TYPED:
        yield "word_vectors", config.weights_key
