"""The choice: from text, machine and time to a recipe, by the table of measured recipes.

Of a short text, which the model for the time would read too often, a larger model is made instead. Of a text that is
too long to be read in the time, a part is prepared.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any, Mapping, NamedTuple, Optional, Sequence

from data_utils.text.held_out import SMALLEST_BLOCK
from settings.fields import is_in
from tasks.from_text.inputs import UNSPACED, Machine, Text
from tasks.from_text.reasons import advice, choices
from tasks.from_text.recipe import (
    CONTINUED_RATE,
    HEAD_SIZE,
    LARGER_MODEL_PASSES,
    MASKED_MINUTES,
    MASKED_PASSES,
    NEW_HEAD_RATE,
    RATE,
    Choice,
    Recipe,
    most_passes,
    updates_of,
)
from tasks.from_text.table import ROWS, interpolated, place_for, updates_in
from utilities.errors import UserError

LENGTHS = (32, 128)
# Pieces of a word, with vocabularies of 8,192: 1.55 in 10 MB of English Wikipedia, 1.62 in 153; 3,072: 1.76 in 1 MB.
PIECES_OF_A_WORD, VOCABULARY_POWER = 1.6, 0.1
VOCABULARIES = (1_024, 8_192)  # smallest and largest that are chosen
ROUNDED_TO = 512
FEWEST_PASSES, LONG_TEXT = 0.5, 10.0  # of a text of more MB that is read less often, only a part is prepared
FEWEST_DOCUMENTS = 20  # of such a part
LEAST_TRAINING = 10.0  # seconds of training below which a command is refused
# The fields of the config that decide in place of a choice, where the user gives them; sizes are read by the choices.
DECIDED_BY = {
    "vocabulary": ("bert_config.vocab_size",),
    "word vectors": ("word_vectors",),
    "optimizer": ("optimizer_opts.name", "optimizer_opts.learning_rate", "optimizer_opts.muon_scale"),
    "weight decay": ("optimizer_opts.weight_decay_rate",),
    "batch": ("global_batch",),
    "dropout": ("bert_config.hidden_dropout_prob", "bert_config.attention_probs_dropout_prob"),
    "precision": ("execution.precision",),
}
SIZES = ("bert_config.num_hidden_layers", "bert_config.hidden_size")


def text_tokens(text: Text, vocabulary: int) -> float:
    """Return the word pieces of a text, estimated."""
    if text.script in UNSPACED:
        return float(text.words)
    if text.is_code:
        return text.megabytes * 1e6 / 3
    return text.words * PIECES_OF_A_WORD * (VOCABULARIES[1] / max(vocabulary, VOCABULARIES[0])) ** VOCABULARY_POWER


def preparation_seconds(text: Text, machine: Machine, passes: float, share: float = 1.0) -> float:
    """Return the seconds in which rows are made of a share of a text; measured with 153 MB on two cores of a Zen 4."""
    read, prepared = text.megabytes * 0.01, share * text.megabytes * (0.13 + 0.13 * passes) * 2 / machine.cores
    return 6 + (read + prepared) / machine.core_speed


def choose(
    text: Text,
    machine: Machine,
    hours: float,
    lengths: Sequence[int] = LENGTHS,
    start_from: Optional[str] = None,
    given: Optional[Mapping[str, Any]] = None,
    has_head: bool = True,
) -> Recipe:
    """Return the recipe for a text, a machine and a time.

    Args:
        hours: From the start of the command to its end.
        lengths: Tokens of a row, one or two numbers.
        start_from: Folder of released weights, which decide vocabulary and sizes; None: random weights.
        given: Values of the config by dotted name that the user set, of the right types.
        has_head: Whether the released weights have a masked-LM head, which those of sentence encoders have not.
    """
    given = given or {}
    if text.is_whole and text.megabytes * (1 - text.repeated) < 2 * SMALLEST_BLOCK / 1e6:
        size = text.megabytes * (1 - text.repeated) * 1e6
        raise UserError(
            f"the text is too short: {size:,.0f} bytes, copies left out, of which a part is held out; give more"
        )
    pieces = given.get("bert_config.vocab_size") or 0
    fitted = functools.partial(_fit, text, machine, hours, len(lengths), start_from, pieces)
    share, fit = 1.0, fitted(1.0)
    smallest = max(LONG_TEXT / text.megabytes, 2 * FEWEST_DOCUMENTS / max(text.documents, 1))
    while fit.updates < FEWEST_PASSES * fit.pass_updates and share > smallest:
        share /= 2
        fit = fitted(share)
    vocabulary, pass_updates, seconds, place, updates = fit
    if seconds < LEAST_TRAINING:
        least = (hours * 3600 - seconds + LEAST_TRAINING) / 3600
        raise UserError(
            f"--hours {hours:g}: preparation, start, evaluation and export take about"
            f" {hours * 3600 - seconds:,.0f} s; give at least {math.ceil(1.2 * least * 1000) / 1000:g}"
        )
    minutes = updates / updates_in(1.0, place)
    layers = round(interpolated(place, lambda row: row.layers))
    hidden = HEAD_SIZE * round(interpolated(place, lambda row: row.hidden) / HEAD_SIZE)
    given_layers, given_hidden = (given.get(f"bert_config.{name}") for name in ("num_hidden_layers", "hidden_size"))
    recipe = Recipe(
        start_from=start_from,
        rate=RATE if not start_from else CONTINUED_RATE if has_head else NEW_HEAD_RATE,
        on_gpu=bool(machine.gpu),
        precision=machine.precision,
        layers=0 if start_from else given_layers or layers,
        hidden=0 if start_from else given_hidden or hidden,
        initializer_range=round(interpolated(place, lambda row: row.initializer_range), 3),
        vocabulary=vocabulary,
        lengths=tuple(lengths),
        first_share=interpolated(minutes, lambda row: row.short_updates / row.updates) if len(lengths) > 1 else 1.0,
        masked=0.25 if minutes >= MASKED_MINUTES or updates >= MASKED_PASSES * pass_updates else 0.15,
        documents_share=share,
        held_out=_held_out(text.part(share)),
        updates=max(1, round(updates)),
        pass_updates=pass_updates,
        is_measured=_is_measured(text, lengths, given),
        preparation=0.0,  # depends on the passes
        training=minutes / machine.speed * 60,
        minutes=minutes,
        choices=(),
        advice=(),
    )
    recipe = replace(recipe, preparation=preparation_seconds(text, machine, sum(recipe.duplicates), share))
    reasons = choices(recipe, text, machine, hours, place, bool(given_layers or given_hidden))
    reasons = [each for each in reasons if not any(is_in(name, DECIDED_BY.get(each.name, ())) for name in given)]
    given_choices = [Choice(name, value, "given on the command line") for name, value in given.items()]
    return replace(recipe, choices=(*reasons, *given_choices), advice=tuple(advice(recipe, text)))


def _is_measured(text: Text, lengths: Sequence[int], given: Mapping[str, Any]) -> bool:
    """Return whether the losses of the table are those of such a text, and of all that is chosen."""
    decisive = (*SIZES, *(field for fields in DECIDED_BY.values() for field in fields))
    is_prose = text.script == "LATIN" and not text.is_code
    return is_prose and tuple(lengths) == LENGTHS and not any(is_in(name, decisive) for name in given)


class Fit(NamedTuple):
    """What fits into the time; ``seconds`` are left for training, ``vocabulary`` is 0 if released weights decide it."""

    vocabulary: int
    pass_updates: float
    seconds: float
    place: float
    updates: float


def _fit(
    text: Text, machine: Machine, hours: float, phases: int, start_from: Optional[str], pieces: int, share: float
) -> Fit:
    """Return what fits into the time with a share of the text; ``pieces`` of the vocabulary are given, or 0."""
    part = text.part(share)
    vocabulary = 0 if start_from else pieces or _vocabulary(part)
    pass_updates = updates_of((1 - _held_out(part)) * text_tokens(part, vocabulary or 30_000))
    seconds = hours * 3600 - machine.start_seconds
    updates = 0.0
    for _ in range(3):  # rows for more passes take longer to make, which leaves time for fewer passes
        passes = max(phases, 1 + updates / pass_updates)
        left = seconds - preparation_seconds(text, machine, passes, share)
        minutes = max(0.0, left) / 60 * machine.speed
        # released weights are often of the largest size of the table
        place = ROWS[-1].minutes if start_from else place_for(minutes, LARGER_MODEL_PASSES * pass_updates)
        updates = min(updates_in(minutes, place), most_passes(start_from) * pass_updates)
    return Fit(vocabulary, pass_updates, left, place, updates)


def _vocabulary(text: Text) -> int:
    """Return the pieces for a text: 3,072 for 1 MB, 8,192 from 10 MB on."""
    if text.script in UNSPACED:
        return VOCABULARIES[1]
    pieces = 3_072 * text.megabytes**0.426
    return int(min(max(round(pieces / ROUNDED_TO) * ROUNDED_TO, VOCABULARIES[0]), VOCABULARIES[1]))


def _held_out(text: Text) -> float:
    """Return the share to hold out: a tenth of 2.5 MB, a hundredth of 150 MB; of few documents, parts are held out."""
    return round(min(max(0.1 * (text.megabytes / 2.5) ** -0.56, 0.002), 0.2), 3)
