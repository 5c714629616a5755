"""The reasons: each choice of a recipe in words, and what would help more."""

from __future__ import annotations

from typing import List

from tasks.from_text.inputs import IDEOGRAPHS, UNSPACED, Machine, Text
from tasks.from_text.recipe import (
    LARGER_MODEL_PASSES,
    MASKED_MINUTES,
    MASKED_PASSES,
    NEW_HEAD_RATE,
    TOKENS_PER_UPDATE,
    Choice,
    Recipe,
    most_passes,
)
from tasks.from_text.table import ROWS

SHORT_TEXT = 20.0  # MB below which released weights are recommended


def choices(recipe: Recipe, text: Text, machine: Machine, hours: float, place: float, is_given: bool) -> List[Choice]:
    """Return the choices with their reasons; ``place`` is that of the model in the table, unless its size is given."""
    below = [row.name for row in ROWS if row.minutes <= place]
    above = [row.name for row in ROWS if row.minutes > place]
    ends = [*below[-1:], *above[:1]]
    between = f"between the recipes {' and '.join(ends)}" if len(ends) == 2 else f"as in the recipe {ends[0]}"
    if place > 1.001 * recipe.minutes:
        why = f"the model for {recipe.minutes:.1f} minutes would read the text more than {LARGER_MODEL_PASSES} times"
    else:
        why = f"for {recipe.minutes:.1f} of its minutes"
    model_reason = "given on the command line" if is_given else f"{between}; {why}"
    is_guess = machine.measured is None and (machine.gpu or machine.cores != 2)
    guess = "; the speed is a guess" if is_guess else ""
    total = recipe.preparation + recipe.training + machine.start_seconds
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
        Choice("passes", f"{recipe.passes:.1f}", f"at most {most_passes(start_from)}; each has masks of its own"),
        Choice("held out", f"{recipe.held_out:.1%}", "of the text, for the loss at the end"),
        Choice("precision", recipe.precision, machine.gpu or machine.bfloat16 or "no fast bfloat16 here"),
    ]


def _rate_reason(recipe: Recipe) -> str:
    if recipe.rate == NEW_HEAD_RATE:
        return "the weights have no masked-LM head, and a new one learns too slowly from a lower rate"
    return "a low rate keeps what was learned; Muon would harm such weights"


def _vocabulary_reason(text: Text) -> str:
    if text.script == IDEOGRAPHS:
        return "each character is a word of its own"
    if text.script in UNSPACED:
        return "the most, because there are no blanks between words"
    return "3,072 for 1 MB, 8,192 from 10 MB on, where they lowered the loss of a byte"


def advice(recipe: Recipe, text: Text) -> List[str]:
    """Return sentences on what would help more."""
    lines = []
    if text.megabytes < SHORT_TEXT and recipe.start_from is None:
        lines.append(
            f"{text.size} is little text for a model that begins with random weights: fine-tuned on few"
            " labels, released weights were better for biomedical terms, and worse for licences, so try both"
            " (--start-from FOLDER continues released ones)."
        )
    if text.repeated > 0.1:
        lines.append(f"{text.repeated:.0%} of the documents occur more than once; without them, each pass is shorter.")
    return lines
