"""The judgement of what came out: losses beside baselines, forecasts, speed; as text and as a page."""

from __future__ import annotations

import math
import statistics
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from data_utils.records.manifest import VALIDATION_FOLDER, load_manifest
from data_utils.text.__main__ import CORPUS_FOLDER
from data_utils.text.examples import UNKNOWN_TOKENS
from data_utils.text.held_out import describe_held_out
from data_utils.tokenizer_files import MASK, UNKNOWN
from reports.from_text_page import filled, write_from_text_page
from reports.page import final_mean
from reports.run_files import RunData, read_run_folder
from tasks.from_text.blanks import fillings
from tasks.from_text.folder import PAGE, RESULT, Folder, damage_in
from tasks.from_text.pace import Pace
from tasks.from_text.recipe import Recipe, most_passes
from tasks.from_text.table import FITTED_MINUTES, FITTED_PASSES, expected_bits
from utilities.commands import start_command
from utilities.errors import UserError
from utilities.metric_names import MLM_LOSS
from utilities.tables import aligned
from utilities.text_folder import MODEL

ACCURACY = "mlm_accuracy"
FORECAST = "by the measured trainings, among which forecasts were up to 5 % too low or too high"
EXPECTED = "of text like Wikipedia, by the measured trainings"


def judge(
    folder: Folder,
    recipe: Recipe,
    pace: Pace,
    hours: float,
    inputs: Mapping[str, str],
    read: Callable[[Folder, Recipe, Pace], Dict[str, Any]],
    next_commands: Callable[[Path], List[Tuple[str, str]]],
) -> None:
    """Write result, of which ``read`` returns what came out, and page, and print them."""
    result = folder.read(RESULT)
    if result is None:
        with folder.step("page"):
            result = {**_done(folder, recipe, pace, hours, inputs), **read(folder, recipe, pace)}
        result["seconds"] = folder.seconds()
        folder.write(RESULT, result)
    with damage_in(folder.path / RESULT):
        lines = result_lines(result)
    print("\n".join([*lines, f"\nmodel: {folder.path / MODEL} (a Hugging Face folder)"]))
    try:
        with damage_in(folder.path / RESULT):
            print(f"page:  {write_from_text_page(folder.path / PAGE, result, next_commands(folder.path))}")
    except (OSError, UserError) as error:
        print(f"no page: {error}; repeat the command", file=sys.stderr)


def _done(folder: Folder, recipe: Recipe, pace: Pace, hours: float, inputs: Mapping[str, str]) -> Dict[str, Any]:
    """Return what was done, whatever the model is for."""
    made = {"passes": f"{recipe.passes:.1f}"}  # of the text that was prepared
    rates = {name: read_run_folder(folder.path / name).rates()[1] for name in pace.updates}
    return {
        "name": folder.path.name,
        "inputs": dict(inputs),
        "hours": hours,
        "choices": [[each.name, made.get(each.name, str(each.value)), each.reason] for each in recipe.choices],
        "changes": [[f"rows of {each.phase}", f"{each.updates:,} updates", each.described] for each in pace.changes],
        "planned": pace.planned,
        "most_passes": most_passes(recipe.start_from) if recipe.is_limited_by_text else None,
        "advice": [*recipe.warning, *recipe.advice],
        "held_out": describe_held_out(folder.path / "data" / list(pace.updates)[-1]),
        "updates": dict(pace.updates),
        "samples_per_second": {name: round(statistics.median(each), 1) for name, each in rates.items() if each},
        "reports": {name: f"{name}/report.html" for name in pace.updates},
    }


def read_result(folder: Folder, recipe: Recipe, pace: Pace) -> Dict[str, Any]:
    """Return what came out, as JSON can represent it; losses in nats."""
    updates = pace.updates
    runs = {name: read_run_folder(folder.path / name) for name in updates}
    last, data = runs[list(updates)[-1]], folder.path / "data" / list(updates)[-1]  # also of a folder that was renamed
    loss, accuracy = last.scores.get(MLM_LOSS), last.scores.get(ACCURACY)
    training = final_mean(last, MLM_LOSS)
    held_out = data / VALIDATION_FOLDER
    bits_of_a_nat = _bits_of_a_nat(held_out)  # by which losses are comparable across vocabularies, but no entropy
    return {
        "loss": loss,
        "right": accuracy,
        "bits_per_byte": None if loss is None or bits_of_a_nat is None else round(loss * bits_of_a_nat, 4),
        "unknown": _unknown_share(held_out),
        "training_loss": None if training is None else training.value,
        "baselines": _baselines(held_out, last.vocabulary_size()),
        "forecasts": forecasts(recipe, loss),
        "expected": _expected(recipe, bits_of_a_nat),
        "curves": _curves(runs, updates),
        "blanks": fillings(data, folder.path / MODEL),
    }


def _unknown_share(held_out: Path) -> Optional[float]:
    """Return the share of [UNK] among the pieces of the held-out text."""
    totals = getattr(load_manifest(held_out), "totals", {})
    return totals[UNKNOWN_TOKENS] / totals["tokens"] if totals.get("tokens") and UNKNOWN_TOKENS in totals else None


def _curves(runs: Mapping[str, RunData], updates: Mapping[str, int]) -> Dict[str, List[Tuple[float, float]]]:
    """Return updates, counted over all phases, and training losses of each phase."""
    curves, before = {}, 0
    for name, run in runs.items():
        steps, losses = run.series(MLM_LOSS)
        curves[name] = [(before + step, loss) for step, loss in zip(steps, losses)]
        before += updates[name]
    return curves


def commands(folder: Path) -> List[Tuple[str, str]]:
    """Return what can be done next with the model in a folder of ``run_from_text.py``, and by which command."""
    table = {"train-file": "reviews.csv", "text": "review", "label": "sentiment"}
    own = [word for name, value in table.items() for word in (f"--classification-data.{name}", value)]
    tune = ["--config", "configs/fine_tuning.json", "--pretrained-ckpt-path", str(folder), "--name", "reviews", *own]
    more = ["--start-from", str(folder), "--text", "more.txt", "--hours", "0.5", "--name", "more"]
    return [
        ("Fill blanks", start_command("tasks.fill_mask", ["--checkpoint", str(folder), f"a sentence with a {MASK}"])),
        ("Train it on a table with the columns review and sentiment", start_command("run_seq_classification", tune)),
        ("Train it on more text", start_command("run_from_text", more)),
    ]


def _baselines(held_out: Path, pieces: Optional[int]) -> List[Tuple[str, float]]:
    """Return what the frequencies of the held-out text alone reach on it, and what is reached without them."""
    manifest = load_manifest(held_out)
    context_free = manifest.context_free.loss_nats if manifest is not None and manifest.context_free else None
    unigram = manifest.unigram_entropy_nats if manifest is not None else None
    uniform = math.log(pieces) if pieces else None
    named = [("context-free baseline", context_free), ("unigram baseline", unigram), ("uniform baseline", uniform)]
    return [(name, round(value, 3)) for name, value in named if value is not None]


def _bits_of_a_nat(held_out: Path) -> Optional[float]:
    """Return the bits a byte for 1 nat a piece: the pieces of the held-out text, divided by its bytes and ln 2."""
    manifest = load_manifest(held_out)
    size = sum(path.stat().st_size for path in (held_out / CORPUS_FOLDER).glob("*.txt"))
    return float(manifest.totals["tokens"] / size / math.log(2)) if manifest is not None and size else None


def _expected(recipe: Recipe, bits_of_a_nat: Optional[float]) -> Optional[Dict[str, float]]:
    """Return the loss of the held-out text that was to be expected of these updates; None where none was measured."""
    bits = recipe.expected_bits
    if bits is None or bits_of_a_nat is None or recipe.minutes > FITTED_MINUTES[1]:
        return None
    return {"bits": bits, "nats": round(bits / bits_of_a_nat, 3)}


def forecasts(recipe: Recipe, loss: Optional[float]) -> List[Tuple[str, float, str]]:
    """Return the held-out losses to expect of more time and more text: what, loss, and from what it is computed.

    The recipe has the updates that were made, the loss is that on held-out text.
    """
    now, minutes, once = recipe.expected_bits, recipe.minutes, recipe.pass_updates
    if loss is None or now is None:
        return []
    then = {}
    if not recipe.is_limited_by_text and 2 * minutes <= FITTED_MINUTES[1]:
        then["twice the time"] = expected_bits(2 * minutes, once)
    if recipe.documents_share == 1 and minutes <= FITTED_MINUTES[1] and 2 * once <= FITTED_PASSES[1]:
        then["twice the text"] = expected_bits(minutes, 2 * once)
    return [(what, round(loss * bits / now, 3), FORECAST) for what, bits in then.items() if bits is not None]


def result_lines(result: Mapping[str, Any]) -> List[str]:
    """Return the result as lines for a terminal."""
    rows: List[Sequence[str]] = [("held out", result["held_out"])] if result.get("held_out") else []
    rows += [(what, f"{after:.1%}, before {before:.1%}") for what, before, after in result.get("recalls", ())]
    if result["loss"] is not None:
        rows.append(("masked-LM loss, held-out text", f"{result['loss']:.3f} nats"))
    if result["right"] is not None:
        rows.append(("masked pieces right", f"{result['right']:.1%}"))
    if result["bits_per_byte"] is not None:
        rows.append(("the loss per byte of text", f"{result['bits_per_byte']:.3f} bits"))
    if result["unknown"] is not None:
        rows.append((f"{UNKNOWN}, held-out text", f"{result['unknown']:.2%} of the pieces"))
    if result["expected"] is not None:
        rows.append(("expected of these updates", f"{result['expected']['nats']:.3f} nats ({EXPECTED})"))
    rows += [(name, f"{value:.3f} nats") for name, value in result["baselines"]]
    rows += [(f"forecast, {what}", f"{value:.3f} nats ({why})") for what, value, why in result["forecasts"]]
    rows += [(f"rows of {name} per second", f"{rate:,.0f}") for name, rate in result["samples_per_second"].items()]
    total, budget = sum(result["seconds"].values()), result["hours"] * 3600
    rows.append(("time", f"{total:,.0f} s of {budget:,.0f} ({total / budget:.1%})"))
    blanks = ["", "=== blanks in held-out sentences"] if result["blanks"] else []
    for blank in result["blanks"]:
        blanks += [blank["text"], f"    {filled(blank)} (it was: {blank['word']})"]
    return ["", "=== what came out", *aligned(rows), *blanks, "", *result["advice"]]
