"""The recipe: all that is decided before the first update is timed, and what follows from it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Optional, Tuple

from tasks.from_text.table import FITTED_MINUTES, FITTED_PASSES, expected_bits

TOKENS_PER_UPDATE = 4_096
REAL_TOKENS = 0.85  # share of a row's tokens that is text, over both phases
HEAD_SIZE = 64
MASKED_MINUTES, MASKED_PASSES = 4.5, 10.0  # from one of these on, a quarter of the words is masked
# Over 1 MB, a larger model with 40 passes was better than a smaller one with 80 in the same time; 160 gained nothing.
LARGER_MODEL_PASSES, MOST_PASSES = 40, 80
MOST_CONTINUED_PASSES = 10
# AdamW's rates for random weights and for released ones. With the low one, a masked-LM head that is new is still worse
# than frequencies when the time is over; a rate of 1e-3 is too much for 6 layers.
RATE, CONTINUED_RATE, NEW_HEAD_RATE = 1e-3, 5e-5, 5e-4
# With AdamW, weights are averages over 1 ÷ (rate × decay) updates, here those of ten passes. 1 MB: 1.0 was better than
# 0.25 after 20 passes and than 0.5 after 40; 10 MB: 0.2 was better than 0.5 after 16 passes.
AVERAGED_PASSES = 10
FULL_DECAY_PASSES = 20  # fewer passes have less decay in proportion; a text that is read once needs none
WEIGHT_DECAYS = (0.01, 1.0)  # smallest and largest that are chosen
FEWEST_UPDATES = 500  # 288 were too few to use the neighbours of a word, 748 enough


@dataclass(frozen=True)
class Choice:
    name: str
    value: Any
    reason: str


@dataclass(frozen=True)
class Recipe:
    """All that is decided before the first update is timed.

    Attributes:
        start_from: Folder of released weights that are continued; None: random weights.
        layers, hidden, initializer_range, vocabulary: The model's; of released weights, which decide them, 0.
        lengths: Tokens of a row, one length a phase.
        first_share: Share of the updates in the first phase, if there are two.
        masked, documents_share: Share of the tokens that is masked, and of the documents that is read.
        updates: That are expected, in all phases.
        pass_updates: Updates in which the text is read once, without what is held out.
        is_measured: Whether text and model are like those of which the loss to expect was measured.
        preparation, training: Seconds that are expected.
        minutes: Minutes of the training that is expected, on two cores of a Zen 4.
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
    minutes: float
    choices: Tuple[Choice, ...]
    advice: Tuple[str, ...]

    @property
    def shares(self) -> Tuple[float, ...]:
        return (self.first_share, 1 - self.first_share)[: len(self.lengths)]

    @property
    def passes(self) -> float:
        return self.updates / self.pass_updates

    @property
    def most_updates(self) -> int:
        """Return the updates of which more would read the text too often."""
        return max(1, int(most_passes(self.start_from) * self.pass_updates))

    @property
    def is_limited_by_text(self) -> bool:
        """Return whether the training ends before the time is over, because the text has been read often enough."""
        return self.updates + 1 >= self.most_updates  # those of the phases are rounded

    def with_updates(self, updates: int) -> Recipe:
        """Return this recipe with another number of updates, and the minutes that they take."""
        return replace(self, updates=updates, minutes=self.minutes * updates / self.updates)

    def with_training_tokens(self, tokens: int) -> Recipe:
        """Return this recipe with the tokens of the prepared text, without what is held out."""
        return replace(self, pass_updates=updates_of(tokens))

    @property
    def expected_bits(self) -> Optional[float]:
        """Return the held-out loss to expect of a text like Wikipedia, in bits a byte; None if nothing is known."""
        known = self.is_measured and not self.start_from
        bits = expected_bits(self.minutes, self.pass_updates) if known else None
        return None if bits is None else round(bits, 3)

    @property
    def expectation(self) -> Tuple[str, ...]:
        """Return the loss to expect in words, or why none is known."""
        if self.start_from:
            return ()
        bits = self.expected_bits
        if bits is not None:
            forecast = ", a forecast: no training as long was measured" if self.minutes > FITTED_MINUTES[1] else ""
            return (
                f"expect: a held-out masked-LM loss of about {bits:.2f} bits a byte, if the text is like"
                f" Wikipedia{forecast}",
            )
        if not self.is_measured or self.pass_updates < FITTED_PASSES[0]:
            return ("expect: not known; measured was 1 MB or more of prose in Latin letters, by models as chosen here",)
        return ()

    @property
    def warning(self) -> Tuple[str, ...]:
        """Return what is said of a training that ends before the time, or is too short to learn from neighbours."""
        if self.is_limited_by_text:
            return (
                f"The text is read {most_passes(self.start_from)} times before the time is over, so the command ends"
                " earlier: more time will not help, more text would.",
            )
        if self.updates < FEWEST_UPDATES and not self.start_from:
            return (
                f"In {self.updates:,} updates a model learns how frequent words are, and nothing of their neighbours;"
                f" give more --hours, for at least {FEWEST_UPDATES} updates.",
            )
        return ()

    @property
    def duplicates(self) -> Tuple[int, ...]:
        """Return the passes over the text in each phase, each with masks of its own."""
        return tuple(max(1, math.ceil(share * self.passes)) for share in self.shares)

    @property
    def weight_decay(self) -> float:
        """Return the weight decay, which keeps the model from memorising a text that is read often."""
        decay = 1 / (self.rate * AVERAGED_PASSES * self.pass_updates) * min(1.0, self.passes / FULL_DECAY_PASSES)
        return round(min(max(decay, WEIGHT_DECAYS[0]), WEIGHT_DECAYS[1]), 3)


def most_passes(start_from: Optional[str]) -> int:
    """Return the most passes over the text, for random weights or for released ones."""
    return MOST_CONTINUED_PASSES if start_from else MOST_PASSES


def updates_of(tokens: float) -> float:
    """Return the updates in which this many tokens of text are read once."""
    return tokens / (TOKENS_PER_UPDATE * REAL_TOKENS)
