"""The steps: rows of each length, the trainings, and the exported model."""

from __future__ import annotations

import shlex
import shutil
import signal
from pathlib import Path
from typing import NamedTuple, Sequence

from data_utils.records.manifest import MANIFEST_NAME, VALIDATION_FOLDER, load_manifest
from data_utils.text.__main__ import CORPUS_FOLDER
from data_utils.text.__main__ import prepare as prepare_rows
from model.tasks import TASKS
from tasks import train
from tasks.from_text.folder import RESULT, Folder, damage_in
from tasks.from_text.pace import Pace
from tasks.from_text.phases import Phase, predictions
from tasks.from_text.recipe import Recipe
from utilities.commands import shortened, start_command
from utilities.errors import Stopped
from utilities.files import read_json_object
from utilities.history import History
from utilities.run_names import RESOLVED
from utilities.secrets import mask
from utilities.text_folder import MODEL

OWN_STOP = 128 + signal.SIGTERM  # the status with which a training stops that is watched


class Prepared(NamedTuple):
    """What is known of a text when its rows are made: pieces of the vocabulary, and tokens that are trained on."""

    pieces: int
    tokens: int


def prepare(folder: Folder, recipe: Recipe, source: Sequence[str]) -> Prepared:
    """Make rows of each length from the text that the options ``source`` name; what is there already is kept."""
    start_from = recipe.start_from
    lengths = sorted(recipe.lengths, reverse=True)  # the longest has the sentences, which the others are made of
    first = folder.path / "data" / str(lengths[0])
    for length in lengths:
        output = folder.path / "data" / str(length)
        if length == lengths[0]:
            given = ["--vocab-file", start_from] if start_from else ["--vocab-size", str(recipe.vocabulary)]
            share = ["--documents-share", str(recipe.documents_share)] if recipe.documents_share < 1 else []
            text = [*source, *share, *given]
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
            with folder.step(f"preparation, {length} tokens"):
                prepare_rows(arguments)
    manifest = load_manifest(folder.path / "data" / str(recipe.lengths[-1]))  # whose text is counted once
    assert manifest is not None, "the data is prepared"
    return Prepared(manifest.vocabulary["size"], manifest.totals["tokens"])


def is_prepared(folder: Folder, recipe: Recipe) -> bool:
    return any((folder.path / "data" / str(length) / MANIFEST_NAME).exists() for length in recipe.lengths)


def is_trained(run: Path, samples: int) -> bool:
    """Return whether a run has ended that was to train on so many samples."""
    if not History(run).finished:
        return False
    with damage_in(run / RESOLVED):
        return int(read_json_object(run / RESOLVED)["config"]["total_num_train_samples"]) >= samples


def train_phase(folder: Folder, phase: Phase, pace: Pace) -> Path:
    """Train, or go on where a killed training stopped, until the time asks for another length; return its folder."""
    run = folder.path / phase.name
    while not is_trained(run, pace.updates[phase.name] * phase.rows):
        (folder.path / RESULT).unlink(missing_ok=True)  # of a shorter training
        shutil.rmtree(folder.path / MODEL, ignore_errors=True)
        updates = pace.updates[phase.name]
        period = {"global_batches_per_log": max(1, min(50, updates // 20))}
        config = {**period, **phase.config, "total_num_train_samples": updates * phase.rows}
        path = folder.write(f"{phase.name}.json", config)
        if run.exists() and not (run / RESOLVED).exists():
            shutil.rmtree(run)  # killed before anything was trained
        goes_on = {"resume": True, "new_length": True} if run.exists() else {}
        command = [TASKS[phase.task].program, "--config", str(path), "--name", phase.name]
        print(f"\n=== training on rows of {phase.name} tokens\n$ {mask(shlex.join(['python', *command]))}", flush=True)
        watch = pace.watch(phase)
        with folder.step(f"training, {phase.name} tokens"):
            try:
                result = train(phase.task, path, watch, name=phase.name, **goes_on)
            except Stopped as stop:
                if watch.stopped_at is None or stop.status != OWN_STOP:
                    raise
                pace.mend(phase, watch.stopped_at, watch.slower)
            else:
                assert result.folder == run, "a folder of this command has one run of each name"
                pace.ended(phase, watch.slower)
    return run


def export_model(folder: Folder, run: Path) -> Path:
    """Write the trained model as a Hugging Face folder, unless it is there; return its path."""
    output = folder.path / MODEL
    if not output.exists():  # it appears when it is complete
        from checkpoints.export.hf_folder import export

        arguments = ["--checkpoint", str(run), "--output", str(output)]
        print(f"\n=== export\n$ {mask(start_command('checkpoints.export', arguments))}", flush=True)
        with folder.step("export"):
            export(str(run), output)
    return output
