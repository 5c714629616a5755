"""Reads the files of a run folder leniently: the run may be new, unfinished, or killed while writing a line."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Mapping, Optional, Tuple

from utilities.environment import VARIABLES
from utilities.errors import UserError
from utilities.files import read_json_lines
from utilities.history import HISTORY_NAME, History
from utilities.metric_names import THROUGHPUT
from utilities.run_names import DATASET, METRICS, RESOLVED, SCORES
from utilities.secrets import mask_value
from utilities.text_folder import run_folders  # room: from_text

if TYPE_CHECKING:
    from typing_extensions import TypeGuard

Points = Tuple[List[float], List[float]]  # positions and values
BASELINE = "baseline.json"  # next to scores.json: what predictions without reading the texts score
MISTAKES = "mistakes.json"  # next to it: what went wrong in the evaluation
STARTED = ("command", "folder", "variables")  # how the program was started
_RUN_FILES = (HISTORY_NAME, METRICS, SCORES, RESOLVED)  # a run has at least one of them


@dataclasses.dataclass(frozen=True)
class RunData:
    """The files of a run folder, with secrets masked.

    Attributes:
        periods: logging periods in the order of their steps, each with ``step``, ``metrics`` and the other fields of
            metrics.jsonl. If a resumed run repeated steps, the later ones are kept.
        evaluations: evaluations while training, each with ``step`` and ``evaluation``, the scores by name.
        config, origins, environment: by dotted key, as all that is not a list.
        baseline: what predictions without reading the texts score, for some or none of these names.
        mistakes: errors of the evaluation, see ``tasks.mistakes.Mistakes``.
        notes: the problems of files that could not be read.
    """

    folder: Path
    periods: List[Dict[str, Any]]
    evaluations: List[Dict[str, Any]]
    config: Dict[str, Any]
    origins: Dict[str, Any]
    derived: Dict[str, Any]
    environment: Dict[str, Any]
    dataset: Dict[str, Any]
    scores: Dict[str, Any]
    baseline: Dict[str, Any]
    mistakes: List[Dict[str, Any]]
    conversion: List[Dict[str, Any]]
    checkpoints: List[Dict[str, Any]]
    start: Dict[str, Any]
    history: List[Dict[str, Any]]
    notes: List[str]

    def series(self, name: str, axis: str = "step") -> Points:
        """Return positions (``step`` or ``samples``) and values of a metric or field of the periods that have it."""
        return _points((period.get(axis), period["metrics"].get(name, period.get(name))) for period in self.periods)

    def rates(self, name: str = THROUGHPUT) -> Points:
        """Return steps and samples per second, or another rate, without the periods that include compilation."""
        steady = [period for period in self.periods if not period.get("compiling")]
        return dataclasses.replace(self, periods=steady).series(name)

    def evaluation_series(self, name: str) -> Points:
        """Return steps and values of a score of the evaluations while training that have it."""
        return _points((record["step"], record["evaluation"].get(name)) for record in self.evaluations)

    def score_names(self) -> List[str]:
        """Return the names of all scores of evaluations while training, in the order of their first appearance."""
        return list(dict.fromkeys(name for record in self.evaluations for name in record["evaluation"]))

    def last_scores(self) -> Dict[str, Any]:
        """Return the scores of the final evaluation, or else those of the last one while training."""
        return self.scores or (self.evaluations[-1]["evaluation"] if self.evaluations else {})

    def metric_names(self) -> List[str]:
        """Return the names of all metrics, in the order of their first appearance."""
        return list(dict.fromkeys(name for period in self.periods for name in period["metrics"]))

    def origin(self, key: str) -> str:
        """Return the origin of the value of a dotted key, or of the whole that it is a part of; empty if unknown."""
        parts = key.split(".")
        for length in range(len(parts), 0, -1):
            origin = self.origins.get(".".join(parts[:length]))
            if origin is not None:
                return str(origin)
        return ""

    def vocabulary_size(self) -> Optional[int]:
        """Return the vocabulary size, from the config or else from the data set."""
        in_dataset = ("vocabulary.size", "settings.vocab_size", "vocab_size")
        candidates = [self.config.get("bert_config.vocab_size"), *map(self.dataset.get, in_dataset)]
        return next((int(value) for value in candidates if is_number(value) and value > 1), None)

    def unigram_entropy(self) -> Optional[float]:
        """Return the entropy of the corpus' word pieces in nats, if the data set has it."""
        return self._of_data("unigram_entropy_nats")

    def context_free(self, held_out: bool) -> Optional[float]:
        """Return the masked-LM loss in nats that the frequencies of the pieces alone reach, if the data set has it."""
        return self._of_data("held_out_context_free.loss_nats" if held_out else "context_free.loss_nats")

    def next_sentence_entropy(self) -> float:
        """Return the next-sentence loss in nats of a constant prediction: ln 2, or less with unequal labels."""
        share = self._of_data("random_next_share")
        if share is None or not 0 < share < 1:
            return math.log(2) if share is None else 0.0
        return -share * math.log(share) - (1 - share) * math.log(1 - share)

    def _of_data(self, name: str) -> Optional[float]:
        value = self.dataset.get(name)
        return float(value) if is_number(value) else None


def _is_run(folder: Path) -> bool:
    return any((folder / name).is_file() for name in _RUN_FILES)


def read_run_folder(folder: Path) -> RunData:
    """Read a run folder, in which any file may be absent; of a folder of several runs in order, the last."""
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"run folder {folder} does not exist; give the folder that a training run wrote")
    folder = next(filter(_is_run, reversed(run_folders(folder) or ())), folder)  # room: from_text
    if not _is_run(folder):
        raise UserError(f"{folder} contains no run (no {', '.join(_RUN_FILES)}); name the folder of one")
    notes: List[str] = []
    resolved = _read_object(folder / RESOLVED, notes)
    periods, evaluations = _read_metrics(folder / METRICS, notes)
    events = History(folder).events()
    starts = [event for event in events if isinstance(event.get("variables"), dict)]
    return RunData(
        folder=folder,
        periods=periods,
        evaluations=evaluations,
        config=flatten(mask_value(resolved.get("config"))),
        origins=flatten(resolved.get("origins")),
        derived=flatten(resolved.get("derived")),
        environment=flatten(mask_value(_read_object(folder / "environment.json", notes))),
        dataset=flatten(mask_value(_read_object(folder / DATASET, notes))),
        scores=flatten(_read_object(folder / SCORES, notes)),
        baseline=flatten(_read_object(folder / BASELINE, notes)),
        mistakes=[each for each in _rows(_read_json(folder / MISTAKES, notes)) if _is_mistakes(each)],
        conversion=_rows(_read_json(folder / "conversion.json", notes)),
        checkpoints=_rows(_read_json(folder / "checkpoints.json", notes)),
        start=_start(starts[-1]) if starts else {},
        history=[_history_row(event) for event in events],
        notes=notes,
    )


def _start(event: Mapping[str, Any]) -> Dict[str, Any]:
    """Return how a run was started; earlier versions also recorded variables with secrets, such as TF_TOKEN_…."""
    variables = {name: value for name, value in event["variables"].items() if name in VARIABLES}
    return mask_value({**{name: event.get(name) for name in STARTED}, "variables": variables})


def flatten(value: Any, prefix: str = "") -> Dict[str, Any]:
    """Flatten nested objects into one with dotted keys; lists stay whole, and anything else gives an empty object.

    Example:
        >>> flatten({"a": {"b": 1}, "c": [2]})
        {'a.b': 1, 'c': [2]}
    """
    flat: Dict[str, Any] = {}
    for key, item in value.items() if isinstance(value, dict) else ():
        if isinstance(item, dict) and item:
            flat.update(flatten(item, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = item
    return flat


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether a JSON value is a number that a chart can show: finite and not too large."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e30


def _points(pairs: Iterable[Tuple[Any, Any]]) -> Points:
    """Return the pairs of numbers as two lists."""
    kept = [(float(position), float(value)) for position, value in pairs if is_number(position) and is_number(value)]
    return [position for position, _ in kept], [value for _, value in kept]


def _history_row(event: Dict[str, Any]) -> Dict[str, Any]:
    """Return an event as a row, with its details in one cell, without the run's id and how it was started."""
    columns = ("time", "event", "step")
    others = {key: value for key, value in event.items() if key not in (*columns, *STARTED, "id", "task") and value}
    details = "; ".join(
        f"{key}: {value if isinstance(value, str) else json.dumps(value)}" for key, value in others.items()
    )
    return {**{key: event.get(key, "") for key in columns}, "what": mask_value(details)}


def _rows(value: Any) -> List[Dict[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _is_mistakes(record: Dict[str, Any]) -> bool:
    """Return whether a record has the texts and tables that the report shows."""
    lists = dict.fromkeys(("headings", "rows", "worst_headings", "worst", "points"), list)
    kinds: Dict[str, type] = {"title": str, "about": str, **lists}
    if not all(isinstance(record.get(name), kind) for name, kind in kinds.items()):
        return False
    return all(isinstance(row, list) for row in (*record["rows"], *record["worst"]))


def _read_object(path: Path, notes: List[str]) -> Dict[str, Any]:
    value = _read_json(path, notes)
    return value if isinstance(value, dict) else {}


def _read_json(path: Path, notes: List[str]) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        notes.append(f"{path.name} could not be read: {error}")
        return None


def _read_metrics(path: Path, notes: List[str]) -> Tuple[List[Dict[str, Any]], List[Dict[str, Any]]]:
    """Return the logging periods and the evaluations in metrics.jsonl."""
    try:
        rows = [row if is_measurement(row) else None for row in read_json_lines(path)]
    except FileNotFoundError:
        return [], []
    except OSError as error:
        notes.append(f"{path.name} could not be read: {error}")
        return [], []
    bad = rows[:-1].count(None)  # the last line may be incomplete because it is just being written
    if bad:
        notes.append(f"{path.name}: {bad} unreadable line{'s' if bad > 1 else ''} left out")
    periods = last_of_each_step(row for row in rows if row and "evaluation" not in row)
    return periods, last_of_each_step(row for row in rows if row and "evaluation" in row)


def is_measurement(row: Optional[Dict[str, Any]]) -> bool:
    """Return whether a line is a logging period or an evaluation."""
    if row is None or not isinstance(row.get("evaluation", row.get("metrics")), dict):
        return False
    return is_number(row.get("step"))


def last_of_each_step(rows: Iterable[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Drop the earlier rows of repeated steps, because the later ones belong to the weights."""
    kept: List[Dict[str, Any]] = []
    for row in rows:
        while kept and kept[-1]["step"] >= row["step"]:
            kept.pop()
        kept.append(row)
    return kept
