"""The judgement of what came out: losses beside baselines, forecasts, speed; as text and as a page."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from data_utils.records.manifest import load_manifest
from data_utils.text.__main__ import CORPUS_FOLDER
from reports.from_text_page import write_from_text_page
from reports.page import final_value, steady_throughput
from reports.run_files import read_run_folder
from tasks.from_text.blanks import fillings
from tasks.from_text.choice import Recipe
from tasks.from_text.folder import MODEL, PAGE, RESULT, Folder, damage_in
from tasks.from_text.table import expected_bits
from utilities.metric_names import MLM_LOSS
from utilities.tables import aligned

ACCURACY = "mlm_accuracy"
FORECAST = "by the measured trainings, among which forecasts were up to 4 % too low or too high"


def judge(folder: Folder, recipe: Recipe, updates: Mapping[str, int], hours: float, facts: Mapping[str, str]) -> None:
    """Write result and page, and print them."""
    result = folder.read(RESULT)
    if result is None:
        result = read_result(folder, recipe, updates, hours, facts)
        folder.lap("page")
        result["seconds"] = folder.seconds()
        folder.write(RESULT, result)
    with damage_in(folder.path / RESULT):
        page, lines = write_from_text_page(folder.path / PAGE, result), result_lines(result)
    print("\n".join(lines))
    print(f"\npage:  {page}\nmodel: {folder.path / MODEL} (a Hugging Face folder)")


def read_result(
    folder: Folder, recipe: Recipe, updates: Mapping[str, int], hours: float, facts: Mapping[str, str]
) -> Dict[str, Any]:
    """Return what came out, as JSON can represent it; losses in nats."""
    runs = {name: read_run_folder(folder.path / name) for name in updates}
    last, data = runs[list(updates)[-1]], folder.path / "data" / list(updates)[-1]  # also of a folder that was renamed
    loss, accuracy = last.scores.get(MLM_LOSS), last.scores.get(ACCURACY)
    training = final_value(last, MLM_LOSS)
    return {
        "name": folder.path.name,
        "facts": dict(facts),
        "hours": hours,
        "choices": [[choice.name, str(choice.value), choice.reason] for choice in recipe.choices],
        "advice": [*recipe.warning, *recipe.advice],
        "updates": dict(updates),
        "loss": loss,
        "right": accuracy,
        "bits_per_byte": _bits_per_byte(data, loss),
        "training_loss": training,
        "baselines": _baselines(last.context_free(held_out=True), last.unigram_entropy(), last.vocabulary_size()),
        "forecasts": forecasts(recipe, loss),
        "expected": recipe.expected_bits,
        "samples_per_second": {
            name: round(statistics.median(rates), 1)
            for name, run in runs.items()
            if (rates := steady_throughput(run)[1])
        },
        "blanks": fillings(data, folder.path / MODEL),
        "reports": {name: f"{name}/report.html" for name in updates},
    }


def _baselines(
    context_free: Optional[float], unigram: Optional[float], pieces: Optional[int]
) -> List[Tuple[str, float]]:
    uniform = math.log(pieces) if pieces else None
    named = [("context-free baseline", context_free), ("unigram baseline", unigram), ("uniform baseline", uniform)]
    return [(name, round(value, 3)) for name, value in named if value is not None]


def _bits_per_byte(data: Path, loss: Optional[float]) -> Optional[float]:
    """Return the loss of a piece times the pieces of the text, divided by its bytes and ln 2.

    Models of different vocabularies can be compared by it. It is not the entropy of the text, because a masked piece
    is predicted from both sides.
    """
    manifest = load_manifest(data)
    files = list(data.parent.glob(f"*/{CORPUS_FOLDER}/*.txt"))
    size = sum(path.stat().st_size for path in files)
    if loss is None or manifest is None or not size or not manifest.totals.get("tokens"):
        return None
    return round(loss * manifest.totals["tokens"] / size / math.log(2), 4)


def forecasts(recipe: Recipe, loss: Optional[float]) -> List[Tuple[str, float, str]]:
    """Return the held-out losses to expect of more time and more text: what, loss, and from what it is computed.

    Args:
        recipe: With the updates that were made.
        loss: On held-out text.
    """
    if loss is None or recipe.expected_bits is None:
        return []
    units, once = recipe.units, recipe.pass_updates
    now, then = expected_bits(units, once), {}
    if not recipe.is_limited_by_text:
        then["twice the time"] = expected_bits(2 * units, once)
    if recipe.documents_share == 1:
        then["twice the text"] = expected_bits(units, 2 * once)
    return [(what, round(loss * bits / now, 3), FORECAST) for what, bits in then.items()]


def result_lines(result: Mapping[str, Any]) -> List[str]:
    """Return the result as lines for a terminal."""
    rows: List[Sequence[str]] = []
    if result["loss"] is not None:
        rows.append(("masked-LM loss, held-out text", f"{result['loss']:.3f} nats"))
    if result["right"] is not None:
        rows.append(("masked words right", f"{result['right']:.1%}"))
    if result["bits_per_byte"] is not None:
        rows.append(("the loss per byte of text", f"{result['bits_per_byte']:.3f} bits"))
    rows += [(name, f"{value:.3f} nats") for name, value in result["baselines"]]
    rows += [(f"forecast, {what}", f"{value:.3f} nats ({why})") for what, value, why in result["forecasts"]]
    rows += [(f"rows of {name} per second", f"{rate:,.0f}") for name, rate in result["samples_per_second"].items()]
    total, budget = sum(result["seconds"].values()), result["hours"] * 3600
    rows.append(("time", f"{total:,.0f} s of {budget:,.0f} ({total / budget:.1%})"))
    return ["", "=== what came out", *aligned(rows), *_blank_lines(result["blanks"]), "", *result["advice"]]


def _blank_lines(blanks: Sequence[Mapping[str, Any]]) -> List[str]:
    lines = ["", "=== blanks in held-out sentences"] if blanks else []
    for blank in blanks:
        pieces = ", ".join(f"{piece} {share:.0%}" for piece, share in blank["fillings"])
        lines += [blank["text"], f"    {pieces} (it was: {blank['word']})"]
    return lines
