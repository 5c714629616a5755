"""The choice: from text, machine and time to a recipe, by a table of measured runs and a rule between its rows.

Time is measured in minutes of training on two cores of a Zen 4 (*units*): minutes times the machine's speed. Between
two rows every number is interpolated geometrically over the units, so that a longer time never gives a smaller model.
Of a short text, which the model for the time would read too often, a larger model is made instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Callable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from tasks.from_text.facts import UNSPACED, MachineFacts, TextFacts
from utilities.errors import UserError


class Row(NamedTuple):
    """A measured recipe.

    Attributes:
        name: Of its configs.
        minutes: Of both trainings on two cores of a Zen 4, start and evaluation included.
        layers, hidden, initializer_range: The model's.
        short_updates, long_updates: Updates of 4,096 tokens in the first and in the second part.
    """

    name: str
    minutes: float
    layers: int
    hidden: int
    initializer_range: float
    short_updates: int
    long_updates: int

    @property
    def updates(self) -> int:
        return self.short_updates + self.long_updates


ROWS = (
    Row("speedrun", 6.4, 2, 128, 0.05, 1_500, 2_812),
    Row("half_hour", 32.7, 2, 192, 0.04, 2_000, 10_000),
    Row("two_hours", 113.0, 4, 256, 0.04, 1_600, 15_000),
    # Planned, never trained to its end; its minutes are those of two hours for its operations.
    Row("small", 1_700.0, 4, 512, 0.03, 4_000, 60_000),
)
# Held-out losses of the first three rows, and of shorter trainings, lie within 4 % of this curve over the units, in
# nats; the text is 153 MB of English Wikipedia.
LOSS_FLOOR, LOSS_FACTOR, LOSS_POWER = 1.834, 2.715, 0.234
BITS_OF_A_NAT = 0.364  # bits a byte for each nat of a piece's loss, measured on that text with 8,192 pieces
# A short text keeps the loss from following that curve: TEXT_FACTOR × updates^-TEXT_POWER bits above the floor are left
# however long the training is, with the updates in which the text is read once. Fitted to 1 MB; the power is a guess.
TEXT_FACTOR, TEXT_POWER, SHARPNESS = 5.32, 0.5, 6

LENGTHS = (32, 128)
TOKENS_PER_UPDATE = 4_096
REAL_TOKENS = 0.85  # share of a row's tokens that is text, over both parts
HEAD_SIZE = 64
MASKED_MINUTES, MASKED_PASSES = 15.0, 10.0  # from one of these on, a quarter of the words is masked
VOCABULARIES = (1_024, 8_192)  # smallest and largest that are chosen
ROUNDED_TO = 512
# Over 1 MB, a larger model with 40 passes was better than a smaller one with 80 in the same time; 160 gained nothing.
LARGER_MODEL_PASSES, MOST_PASSES = 40, 80
# With AdamW, weights are averages over 1 ÷ (rate × decay) updates, here those of ten passes. 1 MB: 1.0 was better than
# 0.25 after 20 passes and than 0.5 after 40; 10 MB: 0.2 was better than 0.5 after 16 passes.
AVERAGED_PASSES, RATE = 10, 1e-3
FULL_DECAY_PASSES = 20  # fewer passes have less decay in proportion; a text that is read once needs none
WEIGHT_DECAYS = (0.01, 1.0)  # smallest and largest that are chosen
MOST_CONTINUED_PASSES = 10
SHORT_TEXT = 20.0  # MB below which released weights are recommended
LEAST_TRAINING = 10.0  # seconds of training below which a command is refused


@dataclass(frozen=True)
class Choice:
    """What was chosen, its value, and why."""

    name: str
    value: Any
    reason: str


@dataclass(frozen=True)
class Recipe:
    """All that is decided before the first update is timed.

    Attributes:
        start_from: Folder of released weights that are continued; None: random weights.
        on_gpu, precision: Where it is trained, and in which number format.
        layers, hidden, initializer_range, vocabulary: The model's; of released weights, which decide them, 0.
        lengths: Tokens of a row, one length a part.
        first_share: Share of the updates in the first part, if there are two.
        masked: Share of the tokens that is masked.
        held_out: Share of the documents that is held out.
        updates: That are expected, in all parts.
        pass_updates: Updates in which the text is read once.
        preparation, training: Seconds that are expected.
        units: Minutes of the training that is expected, on two cores of a Zen 4.
        choices: All of this for people, with reasons.
        advice: Sentences on what would help more.
    """

    start_from: Optional[str]
    on_gpu: bool
    precision: str
    layers: int
    hidden: int
    initializer_range: float
    vocabulary: int
    lengths: Tuple[int, ...]
    first_share: float
    masked: float
    held_out: float
    updates: int
    pass_updates: float
    preparation: float
    training: float
    units: float
    choices: Tuple[Choice, ...]
    advice: Tuple[str, ...]

    @property
    def shares(self) -> Tuple[float, ...]:
        """Return the share of the updates in each part."""
        return (self.first_share, 1 - self.first_share)[: len(self.lengths)]

    @property
    def passes(self) -> float:
        """Return the passes over the text that are expected, in all parts."""
        return self.updates / self.pass_updates

    @property
    def most_updates(self) -> int:
        """Return the updates of which more would read the text too often."""
        return max(1, int(most_passes(self.start_from) * self.pass_updates))

    @property
    def is_limited_by_text(self) -> bool:
        """Return whether the training ends before the time is over, because the text has been read often enough."""
        return self.updates >= self.most_updates

    @property
    def duplicates(self) -> Tuple[int, ...]:
        """Return the passes over the text in each part, each with masks of its own."""
        return tuple(max(1, math.ceil(share * self.passes)) for share in self.shares)

    @property
    def weight_decay(self) -> float:
        """Return the weight decay, which keeps the model from memorising a text that is read often."""
        decay = 1 / (RATE * AVERAGED_PASSES * self.pass_updates) * min(1.0, self.passes / FULL_DECAY_PASSES)
        return round(min(max(decay, WEIGHT_DECAYS[0]), WEIGHT_DECAYS[1]), 3)


def most_passes(start_from: Optional[str]) -> int:
    """Return the most passes over the text, for random weights or for released ones."""
    return MOST_CONTINUED_PASSES if start_from else MOST_PASSES


def interpolated(units: float, value: Callable[[Row], float]) -> float:
    """Return a number of the table between its rows, geometrically; beyond its ends, that of the end.

    Example:
        >>> interpolated(6.4, lambda row: row.hidden), round(interpolated(200, lambda row: row.hidden))
        (128.0, 296)
    """
    if units <= ROWS[0].minutes:
        return float(value(ROWS[0]))
    for low, high in zip(ROWS, ROWS[1:]):
        if units <= high.minutes:
            place = math.log(units / low.minutes) / math.log(high.minutes / low.minutes)
            return float(value(low) * (value(high) / value(low)) ** place)
    return float(value(ROWS[-1]))


def updates_in(units: float, place: Optional[float] = None) -> float:
    """Return the updates of both parts in these units by the model for them, or by that of another place."""
    return units / interpolated(place or units, lambda row: row.minutes / row.updates)


def place_for(units: float, most_updates: float) -> float:
    """Return the place in the table of the model to train for this time: its own, or that of a larger model.

    A larger model makes fewer updates in the same time. It is chosen if the model for this time would make more than
    ``most_updates``; if even the largest would, the place is its.

    Example:
        >>> round(place_for(32.7, 12_000), 1), round(place_for(32.7, 12_000 / 2.5))
        (32.7, 113)
    """
    if updates_in(units) <= most_updates:
        return units
    update, minutes = zip(*((row.minutes / row.updates, row.minutes) for row in ROWS))
    return float(np.exp(np.interp(math.log(units / most_updates), np.log(update), np.log(minutes))))


def expected_loss(units: float) -> float:
    """Return the held-out masked-LM loss, in nats, on 153 MB of English Wikipedia with 8,192 pieces."""
    return LOSS_FLOOR + LOSS_FACTOR * units**-LOSS_POWER


def expected_bits(units: float, pass_updates: float) -> float:
    """Return the held-out loss in bits for each byte of a text like English Wikipedia.

    Args:
        units: Of the training.
        pass_updates: Updates in which the text is read once.
    """
    of_time = BITS_OF_A_NAT * (expected_loss(units) - LOSS_FLOOR)
    of_text = TEXT_FACTOR * pass_updates**-TEXT_POWER
    return BITS_OF_A_NAT * LOSS_FLOOR + (of_time**SHARPNESS + of_text**SHARPNESS) ** (1 / SHARPNESS)


def text_tokens(text: TextFacts, vocabulary: int) -> float:
    """Return the word pieces of a text, estimated."""
    if text.script in UNSPACED:
        return float(text.words)
    if text.is_code:
        return text.megabytes * 1e6 / 3
    return text.words * 1.4 * (8_192 / max(vocabulary, 1_024)) ** 0.15


def preparation_seconds(text: TextFacts, machine: MachineFacts, passes: int) -> float:
    """Return the seconds in which rows are made of a text; measured with 153 MB on two cores of a Zen 4."""
    return 6 + text.megabytes * (0.13 + 0.13 * passes) * 2 / machine.cores


def start_seconds(machine: MachineFacts) -> float:
    """Return the seconds from TensorFlow's import to the first real update, and those after the last one.

    XLA compiles for a GPU three times, 15 to 25 seconds each on an H100.
    """
    return 90.0 if machine.gpu else 25 + 10 / min(machine.speed, 1.0)


def choose(
    text: TextFacts,
    machine: MachineFacts,
    hours: float,
    lengths: Sequence[int] = LENGTHS,
    start_from: Optional[str] = None,
    given: Optional[Mapping[str, Any]] = None,
) -> Recipe:
    """Return the recipe for a text, a machine and a time.

    Args:
        text, machine: As they were found.
        hours: From the start of the command to its end.
        lengths: Tokens of a row, one or two numbers.
        start_from: Folder of released weights, which decide vocabulary and sizes; None: random weights.
        given: Values of the config by dotted name that the user set.

    Raises:
        UserError: The time is too short for the text, or the text has one document.
    """
    given = given or {}
    if text.is_whole and text.documents < 2:
        raise UserError(
            "the text is one document, of which none can be held out; put a blank line between documents, or give"
            " several files and --document-per-file"
        )
    vocabulary = 0 if start_from else int(given.get("bert_config.vocab_size") or _vocabulary(text))
    overhead = start_seconds(machine)
    preparation = preparation_seconds(text, machine, 1 + len(lengths))
    available = hours * 3600 - preparation - overhead
    if available < LEAST_TRAINING:
        least = (preparation + overhead + LEAST_TRAINING) / 3600
        raise UserError(
            f"--hours {hours:g}: preparation takes about {preparation:,.0f} s and start, evaluation and export"
            f" {overhead:,.0f} s; give at least {math.ceil(1.2 * least * 1000) / 1000:g}"
        )
    pass_updates = text_tokens(text, vocabulary or 30_000) / (TOKENS_PER_UPDATE * REAL_TOKENS)
    minutes = available / 60 * machine.speed
    # released weights are often of the largest size of the table
    place = ROWS[-1].minutes if start_from else place_for(minutes, LARGER_MODEL_PASSES * pass_updates)
    updates = min(updates_in(minutes, place), most_passes(start_from) * pass_updates)
    units = updates / updates_in(1.0, place)
    recipe = Recipe(
        start_from=start_from,
        on_gpu=bool(machine.gpu),
        precision=machine.precision,
        layers=0 if start_from else round(interpolated(place, lambda row: row.layers)),
        hidden=0 if start_from else HEAD_SIZE * round(interpolated(place, lambda row: row.hidden) / HEAD_SIZE),
        initializer_range=round(interpolated(place, lambda row: row.initializer_range), 3),
        vocabulary=vocabulary,
        lengths=tuple(lengths),
        first_share=interpolated(units, lambda row: row.short_updates / row.updates) if len(lengths) > 1 else 1.0,
        masked=0.25 if units >= MASKED_MINUTES or updates >= MASKED_PASSES * pass_updates else 0.15,
        held_out=_held_out(text),
        updates=max(1, round(updates)),
        pass_updates=pass_updates,
        preparation=preparation,
        training=units / machine.speed * 60,
        units=units,
        choices=(),
        advice=(),
    )
    recipe = replace(recipe, preparation=preparation_seconds(text, machine, sum(recipe.duplicates)))
    reasons = _choices(recipe, text, machine, hours, place)
    given_choices = [Choice(name, value, "given on the command line") for name, value in given.items()]
    return replace(recipe, choices=(*reasons, *given_choices), advice=tuple(_advice(recipe, text)))


def _vocabulary(text: TextFacts) -> int:
    """Return the pieces for a text: 4,096 for 2.5 MB, as the demo had, and 8,192 from 40 MB on."""
    if text.script in UNSPACED:
        return VOCABULARIES[1]
    pieces = 4_096 * (text.megabytes / 2.5) ** 0.25
    return int(min(max(round(pieces / ROUNDED_TO) * ROUNDED_TO, VOCABULARIES[0]), VOCABULARIES[1]))


def _held_out(text: TextFacts) -> float:
    """Return the share to hold out: a tenth of 2.5 MB, a hundredth of 150 MB, and of few documents at least some five.

    Which documents are held out is decided for each by its text, so none might be among few.
    """
    share = min(max(0.1 * (text.megabytes / 2.5) ** -0.56, 0.002), 0.2)
    return round(min(max(share, 5 / max(text.documents, 1)), 0.5), 3)


def _advice(recipe: Recipe, text: TextFacts) -> List[str]:
    lines = []
    if recipe.is_limited_by_text:
        lines.append(
            f"The text is read {most_passes(recipe.start_from)} times before the time is over, so the command ends"
            " earlier: more time will not help, more text would."
        )
    if text.megabytes < SHORT_TEXT and recipe.start_from is None:
        lines.append(
            f"{text.megabytes:,.1f} MB is little text for a model that begins with random weights: released weights"
            " that are continued (--start-from FOLDER) know more of the language, if there are some."
        )
    if text.repeated > 0.1:
        lines.append(f"{text.repeated:.0%} of the documents occur more than once; without them, each pass is shorter.")
    return lines


def _choices(
    recipe: Recipe,
    text: TextFacts,
    machine: MachineFacts,
    hours: float,
    place: float,
) -> List[Choice]:
    """Return the choices with their reasons; ``place`` in the table is that of the model."""
    below = [row.name for row in ROWS if row.minutes <= place]
    above = [row.name for row in ROWS if row.minutes > place]
    ends = [*below[-1:], *above[:1]]
    between = f"between the recipes {' and '.join(ends)}" if len(ends) == 2 else f"as in the recipe {ends[0]}"
    if place > 1.001 * recipe.units:
        why = f"the model for {recipe.units:.1f} minutes would read the text more than {LARGER_MODEL_PASSES} times"
    else:
        why = f"for {recipe.units:.1f} of its minutes"
    guess = "; the speed is a guess" if machine.gpu or machine.cores != 2 else ""
    total = recipe.preparation + recipe.training + start_seconds(machine)
    start_from = recipe.start_from
    if start_from:
        model = [
            Choice("weights", start_from, "released weights, continued: they decide sizes and vocabulary"),
            Choice("optimizer", "AdamW, 5e-5", "a low rate keeps what was learned; Muon would harm such weights"),
        ]
    else:
        model = [
            Choice("model", f"{recipe.layers} layers × {recipe.hidden}", f"{between}; {why}"),
            Choice("vocabulary", recipe.vocabulary, _vocabulary_reason(text)),
            Choice("word vectors", "yes", "from counts of neighbouring pieces: hundreds of updates less"),
            Choice("optimizer", "Muon, AdamW at 1e-3", "as in all measured recipes"),
            Choice("weight decay", recipe.weight_decay, "more for less text and more passes, against memorising"),
        ]
    lengths = "short rows first: a model learns from them after a tenth of the tokens"
    masks = f"a quarter from {MASKED_MINUTES:.0f} minutes or {MASKED_PASSES:.0f} passes on; before, it gains nothing"
    minutes = f"training {recipe.training / 60:,.1f}, preparation {recipe.preparation / 60:,.1f}{guess}"
    return [
        Choice(
            "time",
            f"{total / 60:,.1f} of {hours * 60:,.1f} minutes",
            "limited by the text" if recipe.is_limited_by_text else minutes,
        ),
        *model,
        Choice("lengths", ", then ".join(map(str, recipe.lengths)), lengths if len(recipe.lengths) > 1 else "given"),
        Choice("batch", f"{TOKENS_PER_UPDATE:,} tokens", "as in all measured recipes"),
        Choice("masked", f"{recipe.masked:.0%}", masks),
        Choice("dropout", "as the weights" if start_from else 0, "with 1 MB, worse also after 40 passes"),
        Choice(
            "passes",
            f"{recipe.passes:.1f}",
            f"at most {most_passes(start_from)}; each has masks of its own",
        ),
        Choice("held out", f"{recipe.held_out:.1%}", "of the documents, for the loss at the end"),
        Choice("precision", recipe.precision, machine.gpu or machine.bfloat16 or "no fast bfloat16 here"),
    ]


def _vocabulary_reason(text: TextFacts) -> str:
    if text.script in UNSPACED:
        return "each character is a word of its own"
    return "4,096 for 2.5 MB, 8,192 from 40 MB on; more pieces did not lower the loss"
