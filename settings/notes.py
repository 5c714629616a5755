"""What a user should know of a config that is not wrong: options without effect, and what is seldom meant."""

from __future__ import annotations

from typing import Dict, Iterator, Optional, Tuple

from model.architecture import Architecture
from model.tasks import PRETRAINING
from settings.architecture import exceeds_padding
from settings.derived import used_length
from settings.fields import value_at
from settings.metadata import manifest_count
from settings.problems import TYPED, show, with_origin
from settings.published import published_notes
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
        rows, pieces = known.vocab_size, manifest_count(config.data_folder, "vocabulary", "size")
        if pieces and exceeds_padding(rows, pieces, config.embedding_serialization_factor):
            unused = f"the model's vocabulary has {rows:,} rows, that of the data set {pieces:,} pieces"
            fix = f"set bert_config.vocab_size to {pieces}, or use other data"
            yield f"{unused}: the other rows are never used; {fix}"
    for option, other in _overruled_options(config, origins):
        yield f"{shown(option)} has no effect: {shown(other)}"
    names = (config.classification_data and config.classification_data.classes) or ()
    plain = [name.strip().lower() for name in names]
    alike = [name for name, other in zip(names, plain) if plain.count(other) > 1]
    if alike:
        what = f"{', '.join(alike[:8])} differ in capitals only, and are classes of their own"
        yield f"classification_data.classes: {what}; if they are not, write them alike in the file"
    separator = config.classification_data and config.classification_data.label_separator
    within = next((name for name in names if separator and separator in name), None)
    if within is not None:
        fix = "set it to a text that no label has"
        yield f"{shown('classification_data.label_separator')}: is within the label {show(within)}; {fix}"
    yield from published_notes(config.optimizer_opts, config.runs_on_ipus)


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
