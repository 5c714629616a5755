"""Writes the page of a model that was made from a text in a given time: results, forecasts, choices and times."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, Mapping, Optional

from reports.charts import Chart, Curve, draw
from reports.page import Card
from reports.templating import fill
from utilities.files import write_atomically


def write_from_text_page(path: Path, result: Mapping[str, Any]) -> Path:
    """Write the page, and return its path.

    Args:
        result: As ``tasks.from_text.judgement.read_result`` returns it, with ``seconds`` by step.
    """
    total = sum(result["seconds"].values())
    html = fill(
        "from_text.html",
        title=f"{result['name']} – from text",
        result=result,
        cards=_cards(result, total),
        times=[(step, f"{seconds:,.1f}") for step, seconds in result["seconds"].items()],
        blanks=[
            (blank["text"], blank["word"], ", ".join(f"{piece} {share:.0%}" for piece, share in blank["fillings"]))
            for blank in result["blanks"]
        ],
        forecasts=[(what, f"{value:.3f}", why) for what, value, why in result["forecasts"]],
        chart=_chart(result),
    )
    return write_atomically(path, html)


def _chart(result: Mapping[str, Any]) -> Optional[Chart]:
    """Return the training losses of the parts over all updates, beside the held-out loss and that without context."""
    curves = [Curve(f"rows of {name}", *zip(*points)) for name, points in result["curves"].items() if points]
    lines = dict(result["baselines"])
    references = [(name, lines[name]) for name in ("context-free baseline",) if name in lines]
    if result["loss"] is not None:
        references.append(("held-out text, at the end", result["loss"]))
    title = result.get("curve_of", "masked-LM loss")
    return draw("chart-loss", title, "loss in nats", curves, references, axis="update") if curves else None


def _cards(result: Mapping[str, Any], seconds: float) -> List[Card]:
    cards = [
        Card(what, f"{after:.1%}", f"the released weights {before:.1%}")
        for what, before, after in result.get("recalls", ())
    ]
    if result["loss"] is not None:
        notes = ", ".join(f"{name} {value:.3f}" for name, value in result["baselines"])
        cards.append(Card("masked-LM loss, held-out text", f"{result['loss']:.3f}", f"nats; {notes}"))
    if result["right"] is not None:
        cards.append(Card("masked words right", f"{result['right']:.1%}", "of held-out text"))
    if result["bits_per_byte"] is not None:
        cards.append(
            Card("loss per byte of text", f"{result['bits_per_byte']:.3f}", "bits, comparable across vocabularies")
        )
    if result["unknown"] is not None:
        cards.append(Card("[UNK]", f"{result['unknown']:.2%}", "of the pieces of held-out text, which are not masked"))
    cards.append(Card("time", f"{seconds / 60:,.1f} min", f"of {result['hours'] * 60:,.1f}"))
    for name, rate in result["samples_per_second"].items():
        cards.append(Card(f"rows of {name} tokens", f"{rate:,.0f}", "a second, median, without compilation"))
    return cards
