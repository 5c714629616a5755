"""The choice: from text, machine and time to a recipe, by the table of measured recipes.

Of a short text, which the model for the time would read too often, a larger model is made instead. Of a text that is
too long to be read in the time, a part is prepared.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from data_utils.text.held_out import SMALLEST_BLOCK
from tasks.from_text.facts import IDEOGRAPHS, UNSPACED, MachineFacts, TextFacts
from tasks.from_text.table import FITTED_PASSES, FITTED_UNITS, ROWS, expected_bits, interpolated, place_for, updates_in
from utilities.errors import UserError

LENGTHS = (32, 128)
TOKENS_PER_UPDATE = 4_096
REAL_TOKENS = 0.85  # share of a row's tokens that is text, over both parts
# Pieces of a word, with vocabularies of 8,192: 1.55 in 10 MB of English Wikipedia, 1.62 in 153; 3,072: 1.76 in 1 MB.
PIECES_OF_A_WORD, VOCABULARY_POWER = 1.6, 0.1
HEAD_SIZE = 64
MASKED_MINUTES, MASKED_PASSES = 4.5, 10.0  # from one of these on, a quarter of the words is masked
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
# AdamW's rates for released weights. With the low one, a masked-LM head that is new is still worse than frequencies
# when the time is over; a rate of 1e-3 is too much for 6 layers.
CONTINUED_RATE, NEW_HEAD_RATE = 5e-5, 5e-4
FEWEST_UPDATES = 500  # 288 were too few to use the neighbours of a word, 748 enough
FEWEST_PASSES, LONG_TEXT = 0.5, 10.0  # of a text of more MB that is read less often, only a part is prepared
FEWEST_DOCUMENTS = 20  # of such a part
SHORT_TEXT = 20.0  # MB below which released weights are recommended
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
        rate: AdamW's highest learning rate.
        on_gpu, precision: Where it is trained, and in which number format.
        layers, hidden, initializer_range, vocabulary: The model's; of released weights, which decide them, 0.
        lengths: Tokens of a row, one length a part.
        first_share: Share of the updates in the first part, if there are two.
        masked: Share of the tokens that is masked.
        documents_share: Share of the documents that is read.
        updates: That are expected, in all parts.
        pass_updates: Updates in which the text is read once, without what is held out.
        is_measured: Whether text and model are like those of which the loss to expect was measured.
        preparation, training: Seconds that are expected.
        units: Minutes of the training that is expected, on two cores of a Zen 4.
        choices: All of this for people, with reasons.
        advice: Sentences on what would help more.
    """

    start_from: Optional[str]
    rate: float
    on_gpu: bool
    precision: str
    layers: int
    hidden: int
    initializer_range: float
    vocabulary: int
    lengths: Tuple[int, ...]
    first_share: float
    masked: float
    documents_share: float
    held_out: float
    updates: int
    pass_updates: float
    is_measured: bool
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
        return self.updates + 1 >= self.most_updates  # those of the parts are rounded

    def with_updates(self, updates: int) -> Recipe:
        """Return this recipe with another number of updates, and the units that they take."""
        return replace(self, updates=updates, units=self.units * updates / self.updates)

    def with_training_tokens(self, tokens: int) -> Recipe:
        """Return this recipe with the tokens of the prepared text, without what is held out."""
        return replace(self, pass_updates=_pass_updates(tokens))

    def with_data_of(self, other: Recipe) -> Recipe:
        """Return this recipe with the rows that were made for another one."""
        names = ("vocabulary", "lengths", "masked", "documents_share", "held_out", "pass_updates")
        return replace(self, **{name: getattr(other, name) for name in names})

    @property
    def expected_bits(self) -> Optional[float]:
        """Return the held-out loss to expect of a text like Wikipedia, in bits a byte; None if nothing is known."""
        known = self.is_measured and not self.start_from
        bits = expected_bits(self.units, self.pass_updates) if known else None
        return None if bits is None else round(bits, 3)

    @property
    def expectation(self) -> Tuple[str, ...]:
        """Return the loss to expect in words, or why none is known."""
        if self.start_from:
            return ()
        bits = self.expected_bits
        if bits is not None:
            forecast = ", a forecast: no training as long was measured" if self.units > FITTED_UNITS[1] else ""
            return (
                f"expect: a held-out masked-LM loss of about {bits:.2f} bits a byte, if the text is like"
                f" Wikipedia{forecast}",
            )
        if not self.is_measured or self.pass_updates < FITTED_PASSES[0]:
            return ("expect: not known; measured was 1 MB or more of prose in Latin letters, by models as chosen here",)
        return ()

    @property
    def warning(self) -> Tuple[str, ...]:
        """Return what is said of a training that is too short to learn from the neighbours of a word."""
        if self.updates < FEWEST_UPDATES and not self.start_from and not self.is_limited_by_text:
            return (
                f"In {self.updates:,} updates a model learns how frequent words are, and nothing of their neighbours;"
                f" give more --hours, for at least {FEWEST_UPDATES} updates.",
            )
        return ()

    @property
    def duplicates(self) -> Tuple[int, ...]:
        """Return the passes over the text in each part, each with masks of its own."""
        return tuple(max(1, math.ceil(share * self.passes)) for share in self.shares)

    @property
    def weight_decay(self) -> float:
        """Return the weight decay, which keeps the model from memorising a text that is read often."""
        decay = 1 / (self.rate * AVERAGED_PASSES * self.pass_updates) * min(1.0, self.passes / FULL_DECAY_PASSES)
        return round(min(max(decay, WEIGHT_DECAYS[0]), WEIGHT_DECAYS[1]), 3)


def most_passes(start_from: Optional[str]) -> int:
    """Return the most passes over the text, for random weights or for released ones."""
    return MOST_CONTINUED_PASSES if start_from else MOST_PASSES


def text_tokens(text: TextFacts, vocabulary: int) -> float:
    """Return the word pieces of a text, estimated."""
    if text.script in UNSPACED:
        return float(text.words)
    if text.is_code:
        return text.megabytes * 1e6 / 3
    return text.words * PIECES_OF_A_WORD * (VOCABULARIES[1] / max(vocabulary, VOCABULARIES[0])) ** VOCABULARY_POWER


def _pass_updates(tokens: float) -> float:
    """Return the updates in which this many tokens of text are read once."""
    return tokens / (TOKENS_PER_UPDATE * REAL_TOKENS)


def preparation_seconds(text: TextFacts, machine: MachineFacts, passes: float, share: float = 1.0) -> float:
    """Return the seconds in which rows are made of a share of a text; measured with 153 MB on two cores of a Zen 4."""
    read, prepared = text.megabytes * 0.01, share * text.megabytes * (0.13 + 0.13 * passes) * 2 / machine.cores
    return 6 + (read + prepared) / machine.core_speed


def start_seconds(machine: MachineFacts) -> float:
    """Return the seconds from TensorFlow's import to the first real update, and those after the last one.

    XLA compiles for a GPU three times, 15 to 25 seconds each on an H100.
    """
    if machine.measured is not None:
        return machine.measured.around
    return 90.0 if machine.gpu else 10 + 25 / machine.core_speed


def choose(
    text: TextFacts,
    machine: MachineFacts,
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
    units = updates / updates_in(1.0, place)
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
        first_share=interpolated(units, lambda row: row.short_updates / row.updates) if len(lengths) > 1 else 1.0,
        masked=0.25 if units >= MASKED_MINUTES or updates >= MASKED_PASSES * pass_updates else 0.15,
        documents_share=share,
        held_out=_held_out(text.part(share)),
        updates=max(1, round(updates)),
        pass_updates=pass_updates,
        is_measured=_is_measured(text, lengths, given),
        preparation=0.0,  # depends on the passes
        training=units / machine.speed * 60,
        units=units,
        choices=(),
        advice=(),
    )
    recipe = replace(recipe, preparation=preparation_seconds(text, machine, sum(recipe.duplicates), share))
    reasons = _choices(recipe, text, machine, hours, place, bool(given_layers or given_hidden))
    reasons = [choice for choice in reasons if not _is_among(given, DECIDED_BY.get(choice.name, ()))]
    given_choices = [Choice(name, value, "given on the command line") for name, value in given.items()]
    return replace(recipe, choices=(*reasons, *given_choices), advice=tuple(_advice(recipe, text)))


def _is_measured(text: TextFacts, lengths: Sequence[int], given: Mapping[str, Any]) -> bool:
    """Return whether the losses of the table are those of such a text, and of all that is chosen."""
    decisive = (*SIZES, *(field for fields in DECIDED_BY.values() for field in fields))
    is_prose = text.script == "LATIN" and not text.is_code
    return is_prose and tuple(lengths) == LENGTHS and not _is_among(given, decisive)


def _is_among(given: Mapping[str, Any], fields: Sequence[str]) -> bool:
    """Return whether one of the fields is given, or one of a section that is among them."""
    return any(name == field or name.startswith(f"{field}.") for name in given for field in fields)


class Fit(NamedTuple):
    """What fits into the time; ``seconds`` are left for training, ``vocabulary`` is 0 if released weights decide it."""

    vocabulary: int
    pass_updates: float
    seconds: float
    place: float
    updates: float


def _fit(
    text: TextFacts,
    machine: MachineFacts,
    hours: float,
    parts: int,
    start_from: Optional[str],
    pieces: int,
    share: float,
) -> Fit:
    """Return what fits into the time with a share of the text; ``pieces`` of the vocabulary are given, or 0."""
    part = text.part(share)
    vocabulary = 0 if start_from else pieces or _vocabulary(part)
    pass_updates = _pass_updates((1 - _held_out(part)) * text_tokens(part, vocabulary or 30_000))
    seconds = hours * 3600 - start_seconds(machine)
    updates = 0.0
    for _ in range(3):  # rows for more passes take longer to make, which leaves time for fewer passes
        passes = max(parts, 1 + updates / pass_updates)
        left = seconds - preparation_seconds(text, machine, passes, share)
        minutes = max(0.0, left) / 60 * machine.speed
        # released weights are often of the largest size of the table
        place = ROWS[-1].minutes if start_from else place_for(minutes, LARGER_MODEL_PASSES * pass_updates)
        updates = min(updates_in(minutes, place), most_passes(start_from) * pass_updates)
    return Fit(vocabulary, pass_updates, left, place, updates)


def _vocabulary(text: TextFacts) -> int:
    """Return the pieces for a text: 3,072 for 1 MB, 8,192 from 10 MB on."""
    if text.script in UNSPACED:
        return VOCABULARIES[1]
    pieces = 3_072 * text.megabytes**0.426
    return int(min(max(round(pieces / ROUNDED_TO) * ROUNDED_TO, VOCABULARIES[0]), VOCABULARIES[1]))


def _held_out(text: TextFacts) -> float:
    """Return the share to hold out: a tenth of 2.5 MB, a hundredth of 150 MB; of few documents, parts are held out."""
    return round(min(max(0.1 * (text.megabytes / 2.5) ** -0.56, 0.002), 0.2), 3)


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
    is_given: bool,
) -> List[Choice]:
    """Return the choices with their reasons; ``place`` is that of the model in the table, unless its size is given."""
    below = [row.name for row in ROWS if row.minutes <= place]
    above = [row.name for row in ROWS if row.minutes > place]
    ends = [*below[-1:], *above[:1]]
    between = f"between the recipes {' and '.join(ends)}" if len(ends) == 2 else f"as in the recipe {ends[0]}"
    if place > 1.001 * recipe.units:
        why = f"the model for {recipe.units:.1f} minutes would read the text more than {LARGER_MODEL_PASSES} times"
    else:
        why = f"for {recipe.units:.1f} of its minutes"
    model_reason = "given on the command line" if is_given else f"{between}; {why}"
    is_guess = machine.measured is None and (machine.gpu or machine.cores != 2)
    guess = "; the speed is a guess" if is_guess else ""
    total = recipe.preparation + recipe.training + start_seconds(machine)
    start_from = recipe.start_from
    if start_from:
        model = [
            Choice("weights", start_from, "released weights, continued: they decide sizes and vocabulary"),
            Choice("optimizer", f"AdamW, {recipe.rate:g}", _rate_reason(recipe)),
        ]
    else:
        model = [
            Choice("model", f"{recipe.layers} layers × {recipe.hidden}", model_reason),
            Choice("vocabulary", recipe.vocabulary, _vocabulary_reason(text)),
            Choice("word vectors", "yes", "from counts of neighbouring pieces: hundreds of updates less"),
            Choice("optimizer", "Muon, AdamW at 1e-3", "as in all measured recipes"),
            Choice("weight decay", recipe.weight_decay, "more for less text and more passes, against memorising"),
        ]
    lengths = "short rows first: a model learns from them after a tenth of the tokens"
    if len(recipe.lengths) == 1:
        lengths = "released weights need no short rows" if start_from else "given on the command line"
    masks = f"a quarter from {MASKED_MINUTES:g} minutes or {MASKED_PASSES:.0f} passes on; before, it gains nothing"
    minutes = f"training {recipe.training / 60:,.1f}, preparation {recipe.preparation / 60:,.1f}{guess}"
    share = f"{recipe.documents_share:.1%} of the documents"
    part = [Choice("text", share, "evenly spread; all of it could not be read in the time")]
    return [
        Choice(
            "time",
            f"{total / 60:,.1f} of {hours * 60:,.1f} minutes",
            "limited by the text" if recipe.is_limited_by_text else minutes,
        ),
        *(part if recipe.documents_share < 1 else []),
        *model,
        Choice("lengths", ", then ".join(map(str, recipe.lengths)), lengths),
        Choice("batch", f"{TOKENS_PER_UPDATE:,} tokens", "as in all measured recipes"),
        Choice("masked", f"{recipe.masked:.0%}", masks),
        Choice("dropout", "as the weights", "as they were trained")
        if start_from
        else Choice("dropout", 0, "with 1 MB, worse also after 40 passes"),
        Choice(
            "passes",
            f"{recipe.passes:.1f}",
            f"at most {most_passes(start_from)}; each has masks of its own",
        ),
        Choice("held out", f"{recipe.held_out:.1%}", "of the text, for the loss at the end"),
        Choice("precision", recipe.precision, machine.gpu or machine.bfloat16 or "no fast bfloat16 here"),
    ]


def _rate_reason(recipe: Recipe) -> str:
    if recipe.rate == NEW_HEAD_RATE:
        return "the weights have no masked-LM head, and a new one learns too slowly from a lower rate"
    return "a low rate keeps what was learned; Muon would harm such weights"


def _vocabulary_reason(text: TextFacts) -> str:
    if text.script == IDEOGRAPHS:
        return "each character is a word of its own"
    if text.script in UNSPACED:
        return "the most, because there are no blanks between words"
    return "3,072 for 1 MB, 8,192 from 10 MB on, where they lowered the loss of a byte"
