"""Writes the page of a model that was made from a text in a given time: results, forecasts, choices and times."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, List, Mapping, Optional, Sequence, Tuple

from reports.charts import Chart, Curve, draw
from reports.page import Card
from reports.templating import fill
from utilities.files import write_atomically


def write_from_text_page(path: Path, result: Mapping[str, Any], commands: Sequence[Tuple[str, str]]) -> Path:
    """Write the page of a result of ``tasks.from_text.judgement``, with ``seconds`` by step, and return its path."""
    total = sum(result["seconds"].values())
    html = fill(
        "from_text.html",
        title=f"{result['name']} – from text",
        result=result,
        held_out=result.get("held_out"),
        cards=_cards(result, total),
        commands=[(what, in_lines(command)) for what, command in commands],
        choices=[*result["choices"], _updates(result)],
        changes=result["changes"],
        times=[(step, f"{seconds:,.1f}", f"{seconds / total:.1%}") for step, seconds in result["seconds"].items()],
        blanks=[(blank["text"], blank["word"], filled(blank)) for blank in result["blanks"]],
        forecasts=[(what, f"{value:.3f}", why) for what, value, why in result["forecasts"]],
        chart=_chart(result),
    )
    return write_atomically(path, html)


def _updates(result: Mapping[str, Any]) -> Tuple[str, str, str]:
    """Return the updates that were made, as a choice."""
    made = " + ".join(f"{updates:,}" for updates in result["updates"].values())
    why = "as many as fit the time"
    if result.get("most_passes"):
        why = f"with more, the text would be read more than {result['most_passes']} times"
    elif result["changes"]:
        why = f"{result['planned']:,} were decided before the training"
    return "updates", made, why


def in_lines(command: str) -> str:
    """Return a shell command on several lines, which a shell joins, with a flag and its values on each."""
    lines: List[List[str]] = [[]]
    for word in shlex.split(command):
        if word.startswith("--"):
            lines.append([])
        lines[-1].append(word)
    return " \\\n  ".join(map(shlex.join, lines))


def filled(blank: Mapping[str, Any]) -> str:
    """Return the words that a blank is filled with, and their probabilities."""
    shares = ((word, "<1%" if share < 0.005 else f"{share:.0%}") for word, share in blank["fillings"])
    return ", ".join(f"{word} {share}" for word, share in shares) or "no word"


def _chart(result: Mapping[str, Any]) -> Optional[Chart]:
    """Return the training losses of the parts over all updates, the held-out loss, the expected one, and a baseline."""
    curves = [Curve(f"rows of {name}", *zip(*points)) for name, points in result["curves"].items() if points]
    if not curves:
        return None
    lines = dict(result["baselines"])
    references = [(name, lines[name]) for name in ("context-free baseline",) if name in lines]
    if result["loss"] is not None:
        end = sum(result["updates"].values())
        curves.append(Curve(f"held-out: {result['loss']:.3f}", [end], [result["loss"]]))
    if result["expected"] is not None:
        references.append(("held-out, expected", result["expected"]["nats"]))
    title = result.get("curve_of", "masked-LM loss")
    return draw("chart-loss", title, "loss in nats", curves, references, axis="update")


def _cards(result: Mapping[str, Any], seconds: float) -> List[Card]:
    cards = [
        Card(what, f"{after:.1%}", f"the released weights {before:.1%}")
        for what, before, after in result.get("recalls", ())
    ]
    if result["loss"] is not None:
        notes = ", ".join(f"{name} {value:.3f}" for name, value in result["baselines"])
        cards.append(Card("masked-LM loss, held-out text", f"{result['loss']:.3f}", f"nats; {notes}"))
    if result["expected"] is not None:
        nats, bits = result["expected"]["nats"], result["expected"]["bits"]
        note = f"nats, {bits:.3f} bits a byte, of text like Wikipedia"
        cards.append(Card("expected of these updates", f"{nats:.3f}", note))
    if result["right"] is not None:
        cards.append(Card("masked pieces right", f"{result['right']:.1%}", "of held-out text; a word has one or more"))
    if result["bits_per_byte"] is not None:
        cards.append(
            Card("loss per byte of text", f"{result['bits_per_byte']:.3f}", "bits, comparable across vocabularies")
        )
    if result["unknown"] is not None:
        cards.append(Card("[UNK]", f"{result['unknown']:.2%}", "of the pieces of held-out text, which are not masked"))
    budget = 3600 * result["hours"]
    cards.append(Card("time", f"{seconds / 60:,.1f} min", f"{seconds / budget:.1%} of {budget / 60:,.1f}"))
    for name, rate in result["samples_per_second"].items():
        cards.append(Card(f"rows of {name} tokens", f"{rate:,.0f}", "a second, median, without compilation"))
    return cards
