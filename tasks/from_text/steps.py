"""The steps: rows of each length, the timing of the first updates, the trainings, and the exported model."""

from __future__ import annotations

import json
import math
import shlex
import shutil
import statistics
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from data_utils.records.manifest import VALIDATION_FOLDER, load_manifest
from data_utils.text.__main__ import CORPUS_FOLDER
from data_utils.text.__main__ import prepare as prepare_rows
from data_utils.tokenizer import read_vocabulary
from data_utils.word_vectors import TOKENS
from model.tasks import PRETRAINING
from reports.run_files import read_run_folder
from settings.loading import resolve
from tasks import task_class, train
from tasks.from_text.choice import HEAD_SIZE, TOKENS_PER_UPDATE, Recipe
from tasks.from_text.folder import MODEL, UPDATES, Folder, damage_in
from utilities.commands import shortened, start_command
from utilities.errors import UserError
from utilities.files import PROJECT, write_atomically
from utilities.history import History
from utilities.progress import waiting
from utilities.secrets import mask

CONFIGS = PROJECT / "configs" / "pretraining"
CONTINUE = PROJECT / "configs" / "continue.json"
SCHEDULE = "optimizer_opts.learning_rate"

TIMED_SHARE = 0.03  # of the training, in which its first updates are timed
TIMED_SECONDS = (5.0, 20.0)
FEWEST_UPDATES = 5
SLOWER_MOMENTS = 1.05  # an update in training over one in the timing: 1.01 to 1.13 times as long in six trainings
EVALUATION = 0.6  # seconds of an evaluated row, as a share of those of a trained one
EVALUATION_START = 0.3  # seconds before the first evaluated row, as a share of those before the first trained one
WORD_VECTOR_SECONDS = 9.0  # for a table of 8,192 × 8,192 counts, and as many for the 16 million tokens that are counted
EXPORT_SECONDS = 2.0  # from the last evaluation to the page


class Part(NamedTuple):
    """One of the trainings, on rows of one length.

    Attributes:
        name: Of its run, its data and its config: the length.
        config: The config, without the length of training.
    """

    name: str
    config: Dict[str, Any]

    @property
    def rows(self) -> int:
        """The rows of an update."""
        batch = self.config["global_batch"]
        return math.prod(batch[key] for key in ("micro_batch_size", "replicas", "grad_acc_steps_per_replica"))


def predictions(recipe: Recipe, length: int) -> int:
    """Return the most masked tokens of a row."""
    return max(1, math.ceil(recipe.masked * length))


def prepare(folder: Folder, recipe: Recipe, source: Sequence[str]) -> None:
    """Make rows of each length from one text, with one vocabulary; what is there already is kept.

    Args:
        source: The options that name and read the text.
    """
    start_from = recipe.start_from
    lengths = sorted(recipe.lengths, reverse=True)  # the longest has the sentences, which the others are made of
    first = folder.path / "data" / str(lengths[0])
    for length in lengths:
        output = folder.path / "data" / str(length)
        if length == lengths[0]:
            given = ["--vocab-file", start_from] if start_from else ["--vocab-size", str(recipe.vocabulary)]
            part = ["--documents-share", str(recipe.documents_share)] if recipe.documents_share < 1 else []
            text = [*source, *part, *given]
        else:
            text = ["--sentences", str(first / CORPUS_FOLDER), "--vocab-file", str(first)]
        masks = ["--masked-lm-prob", str(recipe.masked), "--max-predictions", str(predictions(recipe, length))]
        passes = ["--duplicate-factor", str(recipe.duplicates[recipe.lengths.index(length)])]
        held_out = ["--validation-fraction", str(recipe.held_out)]
        sizes = ["--max-seq-length", str(length), "--no-next-sentence", *masks, *passes, *held_out]
        if load_manifest(output) is None or load_manifest(output / VALIDATION_FOLDER) is None:
            arguments = [*text, "--output", str(output), *sizes]
            command = mask(start_command("data_utils.text", shortened(arguments)))
            print(f"\n=== rows of {length} tokens\n$ {command}", flush=True)
            prepare_rows(arguments)
            folder.lap(f"preparation, {length} tokens")


def parts(folder: Folder, recipe: Recipe, given: Mapping[str, Any], pieces: int) -> List[Part]:
    """Return the trainings in order.

    Args:
        given: Values of the config by dotted name that the user set.
        pieces: Of the vocabulary.
    """
    plain = [_part(folder, recipe, length, pieces) for length in recipe.lengths]
    return [Part(part.name, merged(part.config, given)) for part in plain]


def check_parts(trainings: Sequence[Part], recipe: Recipe, given: Mapping[str, Any]) -> None:
    """Refuse what the trainings would refuse, before their data is made.

    Raises:
        UserError: Released weights cannot be read or have no tokenizer, or a value that the user set cannot be used.
    """
    if recipe.start_from is not None:
        from checkpoints.pretrained.opening import open_pretrained

        open_pretrained(recipe.start_from, "--start-from")
        read_vocabulary(Path(recipe.start_from))
    for part in trainings:  # the weights of an earlier part are not there yet; their sizes are the config's
        config = {**part.config, "pretrained_ckpt_path": recipe.start_from, "total_num_train_samples": part.rows}
        resolve(PRETRAINING, [config], given)


def _part(folder: Folder, recipe: Recipe, length: int, pieces: int) -> Part:
    gpu, start_from = recipe.on_gpu, recipe.start_from
    data = folder.path / "data" / str(length)
    is_first, is_last = length == recipe.lengths[0], length == recipe.lengths[-1]
    rows = max(2, TOKENS_PER_UPDATE // length)
    micro, accumulated = (rows, 1) if gpu else (max(1, rows // 2), 2)
    base = CONFIGS / f"pretrain_tiny_{'128' if is_last else '32'}_speedrun.json"
    config: Dict[str, Any] = {
        "extends": [str(base), *([str(CONTINUE)] if start_from else [])],
        "dataset_dir": str(data),
        "output_dir": str(folder.path),
        "max_seq_length": length,
        "max_predictions_per_seq": predictions(recipe, length),
        "global_batch": {"micro_batch_size": micro, "replicas": 1, "grad_acc_steps_per_replica": accumulated},
        "execution": {
            "device": "gpu" if gpu else "cpu",
            "precision": recipe.precision,
            "parallel_micro_batches": not gpu,
        },
        "do_validation": is_last,
        "checkpoint_minutes": 2,
        "keep_last": 1,
        "word_vectors": is_first and not start_from,
    }
    if start_from:
        config["optimizer_opts"] = {"muon_scale": None}
        for option in ("use_qkv_split", "use_qkv_bias", "use_projection_bias", "use_cls_layer", "use_prediction_bias"):
            config[option] = None  # as the weights have it
    else:
        config["bert_config"] = {
            "vocab_size": 2 * math.ceil(pieces / 2),
            "num_hidden_layers": recipe.layers,
            "hidden_size": recipe.hidden,
            "num_attention_heads": _heads(recipe.hidden),
            "intermediate_size": 4 * recipe.hidden,
            "initializer_range": recipe.initializer_range,
        }
        config["optimizer_opts"] = {"weight_decay_rate": recipe.weight_decay}
    if is_first and is_last and not start_from:  # random weights need a warm-up
        config["optimizer_opts"]["learning_rate"] = {"schedule_name": "linear", "warmup_frac": 0.05}
    if is_first and start_from:
        config["pretrained_ckpt_path"] = start_from
    if not is_first:
        config["pretrained_ckpt_path"] = str(folder.path / str(recipe.lengths[0]))
    return Part(str(length), config)


def _heads(hidden: int) -> int:
    """Return the attention heads of a width: of 64 numbers each, or of the next larger number that divides it."""
    return next(heads for heads in range(max(1, hidden // HEAD_SIZE), 0, -1) if hidden % heads == 0)


class Prepared(NamedTuple):
    """What is known of a text when its rows are made: pieces of the vocabulary, and tokens that are trained on."""

    pieces: int
    tokens: int


def prepared(folder: Folder, recipe: Recipe) -> Prepared:
    """Return the facts of the data that is there, whose text is counted once."""
    manifest = load_manifest(folder.path / "data" / str(recipe.lengths[-1]))
    assert manifest is not None, "the data is prepared"
    return Prepared(manifest.vocabulary["size"], manifest.totals["tokens"])


def merged(config: Mapping[str, Any], given: Mapping[str, Any]) -> Dict[str, Any]:
    """Return a config with values that are given by dotted name.

    Example:
        >>> merged({"data": {"shuffle": True}, "seed": 1}, {"data.shuffle": False})
        {'data': {'shuffle': False}, 'seed': 1}
    """
    result: Dict[str, Any] = json.loads(json.dumps(config))
    for name, value in given.items():
        *sections, key = name.split(".")
        section = result
        for each in sections:
            section = section.setdefault(each, {})
        section[key] = value
    return result


class Timing(NamedTuple):
    """What the first updates of a training took, in seconds.

    Attributes:
        update: Of one update, on average.
        start: Of everything before, compilation included, without the import of TensorFlow.
    """

    update: float
    start: float


def time_updates(folder: Folder, part: Part, start_from: Optional[str], seconds: float, guess: float) -> Timing:
    """Train a few updates in a run of its own, and return what they took.

    Args:
        start_from: Released weights; None: random ones, which take as long as those of an earlier part.
        seconds: How long to time.
        guess: Seconds that an update is expected to take.
    """
    before = folder.since_lap()
    period = max(FEWEST_UPDATES, round(seconds / guess / 3))
    output = folder.path / "timing"
    shutil.rmtree(output, ignore_errors=True)
    changes = {
        "name": part.name,
        "output_dir": str(output),
        "total_num_train_samples": 3 * period * part.rows,
        "global_batches_per_log": period,
        "word_vectors": False,
        **dict.fromkeys(("do_validation", "report", "tensorboard"), False),
    }
    config = {**part.config, **changes, "pretrained_ckpt_path": start_from}
    path = write_config(folder, f"timing-{part.name}", config)
    train(PRETRAINING, path)
    run = read_run_folder(output / part.name)
    shutil.rmtree(output, ignore_errors=True)
    path.unlink()
    rates = [period["throughput"] for period in run.periods if not period.get("compiling") and period.get("throughput")]
    if not rates:
        raise UserError(f"{folder.path}: no update could be timed; give more --hours")
    update = SLOWER_MOMENTS * part.rows / statistics.median(rates)
    return Timing(update, folder.since_lap() - before - 3 * period * update)


def fix_updates(folder: Folder, recipe: Recipe, trainings: Sequence[Part], hours: float) -> Dict[str, int]:
    """Return the number of updates of each training; they are timed and written down unless that is done already.

    Raises:
        UserError: No time is left.
    """
    known = folder.read(UPDATES)
    if known is not None:
        with damage_in(folder.path / UPDATES):
            return {part.name: int(known["updates"][part.name]) for part in trainings}
    print("\n=== timing the first updates", flush=True)
    with waiting("loading TensorFlow"):
        from training import seeds  # noqa: F401 (so that the first timing is without it)

        task_class(PRETRAINING)
    seconds = min(max(TIMED_SHARE * recipe.training, TIMED_SECONDS[0]), TIMED_SECONDS[1])
    last = trainings[-1]  # updates of all parts have as many tokens, and take about as long
    timing = time_updates(folder, last, recipe.start_from, seconds, recipe.training / recipe.updates)
    worked = sum(folder.seconds().values()) + folder.since_lap()
    after = len(trainings) * timing.start + EXPORT_SECONDS
    after += _word_vector_seconds(trainings[0]) + _evaluation_seconds(last, timing)
    left = hours * 3600 - worked - after
    if left < FEWEST_UPDATES * len(trainings) * timing.update:
        raise UserError(
            f"--hours {hours:g}: of these {hours * 3600:,.0f} s, preparation and start took {worked:,.0f}, and"
            f" {after:,.0f} s are needed at the end; give another --name and at least"
            f" --hours {math.ceil(1.2 * (worked + after) / 3.6) / 1000:g}"
        )
    total = min(int(left / timing.update), recipe.most_updates)
    updates = {part.name: max(FEWEST_UPDATES, round(share * total)) for part, share in zip(trainings, recipe.shares)}
    folder.write(
        UPDATES,
        {
            "updates": updates,
            "seconds_of_an_update": round(timing.update, 5),
            "seconds_of_a_start": round(timing.start, 2),
            "seconds_at_the_end": round(after, 2),
            "seconds_worked": round(worked, 2),
        },
    )
    folder.lap("timing")
    return updates


def _word_vector_seconds(part: Part) -> float:
    if not part.config["word_vectors"]:
        return 0.0
    manifest = load_manifest(Path(part.config["dataset_dir"]))
    assert manifest is not None, "the data is prepared"
    tokens = manifest.records * part.config["max_seq_length"]
    return WORD_VECTOR_SECONDS * ((manifest.vocabulary["size"] / 8_192) ** 2 + min(1.0, tokens / TOKENS))


def _evaluation_seconds(part: Part, timing: Timing) -> float:
    manifest = load_manifest(Path(part.config["dataset_dir"]) / VALIDATION_FOLDER)
    rows = manifest.records if manifest is not None else 0
    return EVALUATION * rows * timing.update / part.rows + EVALUATION_START * timing.start


def write_config(folder: Folder, name: str, config: Mapping[str, Any]) -> Path:
    """Write a config into the folder, and return its path."""
    return write_atomically(folder.path / f"{name}.json", json.dumps(config, indent=2, ensure_ascii=False) + "\n")


def train_part(folder: Folder, part: Part, updates: int) -> Path:
    """Train, or go on where a killed training stopped; return the folder of the run."""
    run = folder.path / part.name
    period = {"global_batches_per_log": max(1, min(50, updates // 20))}
    path = write_config(folder, part.name, {**period, **part.config, "total_num_train_samples": updates * part.rows})
    if History(run).finished:
        return run
    command = ["run_pretraining.py", "--config", str(path), "--name", part.name]
    print(f"\n=== training on rows of {part.name} tokens\n$ {mask(shlex.join(['python', *command]))}", flush=True)
    if run.exists() and not (run / "resolved_config.json").exists():
        shutil.rmtree(run)  # killed before anything was trained
    result = train(PRETRAINING, path, name=part.name)
    assert result.folder == run, "a folder of this command has one run of each name"
    folder.lap(f"training, {part.name} tokens")
    return run


def export_model(folder: Folder, run: Path) -> Path:
    """Write the trained model as a Hugging Face folder, unless it is there; return its path."""
    output = folder.path / MODEL
    if not output.exists():  # it appears when it is complete
        from checkpoints.export.hf_folder import export

        arguments = ["--checkpoint", str(run), "--output", str(output)]
        print(f"\n=== export\n$ {mask(start_command('checkpoints.export', arguments))}", flush=True)
        export(str(run), output)
        folder.lap("export")
    return output
