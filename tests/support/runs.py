"""Small data sets and configs, and runs of them through the real command line, in this process."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import random
import resource
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data_utils.text.__main__ import main as prepare
from keras_extensions.backend import tf
from keras_extensions.listeners.outputs import MetricsFile
from tasks.cli import main
from tests.support.record_samples import PREDICTIONS, SEQUENCE, VOCABULARY, example, sample, write, write_samples

BATCH = 16
RECORDS = 90  # 5.6 global batches, so epochs end within updates
TIMES = ("seconds", "throughput", "compiling", "packs_per_second", "tokens_per_second")
STILL = {"name": "AdamW", "weight_decay_rate": 0.0, "learning_rate": {"max_learning_rate": 1e-12}}

TEXT_SEQUENCE, TEXT_PREDICTIONS, TEXT_VOCABULARY = 32, 5, 200
NOUNS = [
    *("river", "mountain", "engine", "teacher", "planet", "garden"),
    *("bridge", "letter", "winter", "captain", "library", "signal"),
]
VERBS = ["crosses", "carries", "follows", "watches", "builds", "paints", "remembers", "repairs", "measures", "visits"]


class Killed(BaseException):
    """Represents SIGKILL: the run gets no chance to save."""


class Outcome(NamedTuple):
    """The exit status and output of a command."""

    status: int
    output: str
    errors: str

    @property
    def error(self) -> str:
        """The single line with the error message."""
        lines = [line for line in self.errors.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1 and "Traceback" not in self.errors, self.errors
        return lines[0]


def run_command(task: str, config: Path, *arguments: str, status: int | None = None) -> Outcome:
    """Run the command of a task; unless ``status`` is None, check that it ends with this exit status."""
    printed, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
        ended = main(task, ["--config", str(config), *arguments])
    assert status in (None, ended), errors.getvalue()
    return Outcome(ended, printed.getvalue(), errors.getvalue())


def train(config: Path, output: Path, *arguments: str, status: int | None = None) -> Outcome:
    return run_command("pretraining", config, "--output-dir", str(output), *arguments, status=status)


def trained(config: Path, output: Path, *arguments: str) -> Path:
    """Pre-train successfully, and return the run folder, which has the config's name."""
    train(config, output, *arguments, status=0)
    return output / config.stem


def write_json(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def read_lines(path: Path) -> list[Any]:
    """Return the content of a file with one JSON value per line."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def read_csv(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_csv(path: Path, header: list[str], rows: Iterable[Sequence[object]]) -> Path:
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def content(folder: Path) -> dict[str, bytes]:
    """Return the content of every file below a folder, by its path there."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def metrics(run: Path) -> list[dict[str, Any]]:
    return read_lines(run / "metrics.jsonl")


def logged(run: Path) -> list[dict[str, Any]]:
    """Return the logged values of a run, without times."""
    return [{key: value for key, value in period.items() if key not in TIMES} for period in metrics(run)]


def evaluations(run: Path) -> list[tuple[int, dict[str, float]]]:
    """Return the scores of the evaluations while training, each with its step."""
    return [(line["step"], line["evaluation"]) for line in metrics(run) if "evaluation" in line]


def events(run: Path) -> list[str]:
    path = run / "history.jsonl"
    return [event["event"] for event in read_lines(path)] if path.exists() else []


def checkpoints(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").glob("*step-*"))


def last_checkpoint(run: Path) -> Path:
    return sorted((run / "checkpoints").glob("step-*"))[-1]


def variables(run: Path, part: str) -> dict[str, np.ndarray]:
    """Return the ``weights`` or the ``optimizer`` of the last checkpoint, read only by TensorFlow."""
    reader = tf.train.load_checkpoint(str(last_checkpoint(run) / part))
    end = "/.ATTRIBUTES/VARIABLE_VALUE"
    names = [name for name in reader.get_variable_to_shape_map() if name.endswith(end)]
    return {name[: -len(end)]: reader.get_tensor(name) for name in names}


def state(run: Path) -> dict[str, np.ndarray]:
    """Return everything in the last checkpoint, weights and optimizer."""
    parts = ("weights", "optimizer")
    values = {f"{part}/{name}": value for part in parts for name, value in variables(run, part).items()}
    assert len(values) > 20
    return values


def assert_same_run(left: Path, right: Path) -> None:
    """Check that weights, moments, counter and logged losses are bit-equal."""
    one, other = state(left), state(right)
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)
    assert logged(left) == logged(right)


def copy_of(run: Path, name: str) -> Path:
    copy = run.with_name(name)
    shutil.copytree(run, copy)
    return copy


@contextlib.contextmanager
def at_step(monkeypatch: Any, step: int, action: Callable[[], None]) -> Iterator[None]:
    """Perform an action when a run has logged ``step``, before anything else can happen."""
    original = MetricsFile.period

    def period(listener: MetricsFile, period: Any) -> None:
        original(listener, period)
        if period.step == step:
            action()

    with monkeypatch.context() as patch:
        patch.setattr(MetricsFile, "period", period)
        yield


@contextlib.contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """Within the block, no file can grow beyond this size, so writing fails as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def kill() -> None:
    raise Killed


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def killed_at(
    monkeypatch: Any, step: int, config: Path, output: Path, *arguments: str, task: str = "pretraining"
) -> None:
    """Train until the run is killed after logging ``step``."""
    with at_step(monkeypatch, step, kill), contextlib.suppress(Killed):
        outcome = run_command(task, config, "--output-dir", str(output), *arguments)
        raise AssertionError(f"the run was not killed: {outcome.errors}")


def write_dataset(folder: Path, records: int = RECORDS, poisoned: int | None = None) -> Path:
    """Write records to three files; the loss of record ``poisoned`` is NaN, because its weights' sum is not finite."""
    folder.mkdir(parents=True)
    bounds = np.linspace(0, records, 4).astype(int)
    for number in range(3):
        path, part = folder / f"part-{number}.tfrecord", range(bounds[number], bounds[number + 1])
        if poisoned is None:
            write_samples(path, part)
        else:
            poison = {"masked_lm_weights": [3e38, 3e38, 3e38]}
            write(path, [example(sample(record, **(poison if record == poisoned else {}))) for record in part])
    return folder


BASE: dict[str, Any] = {
    "optimizer_opts": {"name": "AdamW", "learning_rate": {"max_learning_rate": 0.01}},
    "enable_recomputation": False,
    "execution": {"xla": False, "platform": "software", "precision": "float32"},
    "embedding_serialization_factor": 1,
}
SMALLEST = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 32}
SMALL = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 64}


def write_config(path: Path, dataset: Path, updates: int = 26, **changes: Any) -> Path:
    """Write a config for ``write_dataset``'s records with two updates per execution, a checkpoint every second one."""
    config: dict[str, Any] = {
        **BASE,
        "bert_config": {**SMALLEST, "vocab_size": VOCABULARY, "max_position_embeddings": SEQUENCE},
        "dataset_dir": str(dataset),
        "max_seq_length": SEQUENCE,
        "max_predictions_per_seq": PREDICTIONS,
        "global_batch": {"micro_batch_size": 4, "grad_acc_steps_per_replica": 4},
        "total_num_train_samples": BATCH * updates,
        "global_batches_per_log": 2,
        "ckpt_every_n_steps_per_execution": 2,
        "tensorboard": False,
        "report": False,
    }
    return write_json(path, {**config, **changes})


def write_text_config(path: Path, sizes: dict[str, int] = SMALLEST, **changes: Any) -> Path:
    """Write a config for ``prepare_dataset``'s records; ``changes`` replace top-level values."""
    config: dict[str, Any] = {
        **BASE,
        "bert_config": {**sizes, "vocab_size": TEXT_VOCABULARY, "max_position_embeddings": 64},
        "max_seq_length": TEXT_SEQUENCE,
        "max_predictions_per_seq": TEXT_PREDICTIONS,
        "global_batch": {"micro_batch_size": 8, "grad_acc_steps_per_replica": 2},
        "total_num_train_samples": 16 * 12,
        "global_batches_per_log": 4,
    }
    return write_json(path, {**config, **changes})


def sentence(number: int) -> str:
    """Return one of twelve sentences, each determined by any two of its words."""
    noun, other, place = (NOUNS[(number * step + 1) % len(NOUNS)] for step in (1, 5, 7))
    return f"The {noun} {VERBS[number % len(VERBS)]} the {other} near the {place}."


def write_text(path: Path, documents: int = 60) -> Path:
    """Write documents of sentences that a model memorises within some hundred updates."""
    chance = random.Random(4)
    pages = [" ".join(sentence(chance.randrange(12)) for _ in range(12)) for _ in range(documents)]
    path.write_text("\n\n".join(pages), encoding="utf-8")
    return path


def prepare_dataset(
    folder: Path, text: Path, *flags: str, sequence: int = TEXT_SEQUENCE, predictions: int = TEXT_PREDICTIONS
) -> Path:
    """Make TFRecords from the text by the product's own command."""
    arguments = [
        "--text", str(text), "--output", str(folder), "--vocab-size", str(TEXT_VOCABULARY), "--workers", "1",
        "--max-seq-length", str(sequence), "--max-predictions", str(predictions), "--duplicate-factor", "2",
        *flags,
    ]  # fmt: skip
    assert prepare(arguments) in (0, None)
    return folder
