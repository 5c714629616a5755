"""``--for search``: released weights become a model that finds passages like these, from the text alone.

A passage is two halves, runs of whole sentences that follow each other in a document. The first half of a pair has to
find the second one among those of the batch; the model is judged by how many halves of held-out passages find theirs.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from data_utils.text.__main__ import CORPUS_FOLDER
from data_utils.text.corpus import read_corpus, read_documents
from data_utils.text.held_out import choose_held_out, select, split_documents
from model.tasks import SENTENCE_EMBEDDING
from reports.run_files import read_run_folder
from tasks import train
from tasks.from_text.folder import Folder
from tasks.from_text.inputs import Text
from tasks.from_text.pace import Pace
from tasks.from_text.phases import Phase, merged, released
from tasks.from_text.purpose import Purpose
from tasks.from_text.recipe import REAL_TOKENS, TOKENS_PER_UPDATE, Choice, Recipe, most_passes
from tasks.from_text.steps import Prepared, export_model, prepare
from utilities.commands import start_command
from utilities.errors import UserError
from utilities.files import PROJECT, replacing
from utilities.history import History
from utilities.metric_names import LOSS

PAIRS, HELD_OUT, BEFORE = "pairs.jsonl", "held_out.jsonl", "before"
PAIRS_OF_UPDATE = 32  # each with the tokens of a row of 128, as many as in all recipes
HALF_BYTES = 1.5  # the fewest bytes of a half, for each token of a row
RATE = 5e-5
MOST_PASSAGES = 5_000  # that are held out, if there is so much text
PASSAGES_OF_UPDATE = 2.5  # held-out passages for each update, so that both judgements take a tenth of the time
LARGEST_HELD_OUT = 0.2  # of the text
RECALLS = {"recall_at_1": "its other half comes first", "recall_at_10": "it is among the first ten"}
OF_FILES = ("train_file", "validation_file", "validation_fraction", "validation_seed", "text", "label")
OF_PAIRS = dict.fromkeys((f"embedding.{name}" for name in OF_FILES), "the command makes the pairs")

Pair = Tuple[str, str]


def check(lengths: Sequence[int], start_from: Optional[str]) -> None:
    """Refuse several lengths, random weights, and those of a model that puts a prompt before each text."""
    if start_from is None:
        raise UserError("--for search: continues released weights; give --start-from FOLDER")
    if len(lengths) > 1:
        raise UserError("--lengths: with --for search, give one number, for the tokens of a pair")
    from checkpoints.pretrained.sentence_transformers import embedding_prompt

    if embedding_prompt(released(start_from)).text:
        what = "puts a prompt before each text, which pairs do not have; name a model without a default prompt"
        raise UserError(f"--start-from {start_from}: {what}")


def adapt(recipe: Recipe, text: Text) -> Recipe:
    """Return the recipe with more text held out, and without what only masked words need."""
    passages = min(MOST_PASSAGES, PASSAGES_OF_UPDATE * recipe.updates)
    size = 2 * 1.3 * HALF_BYTES * recipe.lengths[-1] * passages / 1e6  # megabytes; sentences make halves longer
    held_out = round(min(max(size / (text.megabytes * recipe.documents_share), 0.002), LARGEST_HELD_OUT), 3)
    passes = f"at most {most_passes(recipe.start_from)}"
    own = {
        "optimizer": Choice("optimizer", f"AdamW, {RATE:g}", "as in the trainings that were measured"),
        "lengths": Choice("lengths", recipe.lengths[-1], "tokens of a pair, half of them for each text"),
        "batch": Choice("batch", f"{PAIRS_OF_UPDATE} pairs", "each half looks for the other one among them"),
        "passes": Choice("passes", f"{recipe.passes:.1f}", passes),
        "held out": Choice("held out", f"{held_out:.1%}", f"for {MOST_PASSAGES:,} passages at most, to judge by"),
    }
    kept = [own.get(choice.name, choice) for choice in recipe.choices if choice.name != "masked"]
    pairs = Choice("pairs", "neighbouring passages", "halves that follow each other in a document")
    return replace(recipe, held_out=held_out, choices=(*kept, pairs))


def phases(folder: Folder, recipe: Recipe, given: Mapping[str, Any], pieces: int) -> List[Phase]:
    """Return the training on pairs; arguments as of ``tasks.from_text.phases.phases``."""
    length = recipe.lengths[-1]
    config = {
        "extends": str(PROJECT / "configs" / "fine_tuning.json"),
        "dataset_dir": str(folder.path / "data" / str(length)),
        "output_dir": str(folder.path),
        "pretrained_ckpt_path": recipe.start_from,
        "max_seq_length": length,
        "num_epochs": None,  # the time decides
        "embedding": {"train_file": PAIRS, "validation_file": HELD_OUT},
        "global_batch": {"micro_batch_size": PAIRS_OF_UPDATE, "replicas": 1, "grad_acc_steps_per_replica": 1},
        "optimizer_opts": {"learning_rate": {"max_learning_rate": RATE}},
        "execution": {"device": "gpu" if recipe.on_gpu else "cpu", "precision": recipe.precision},
        "checkpoint_minutes": 2,
        "keep_last": 1,
        "word_vectors": False,
    }
    return [Phase(str(length), merged(config, given), SENTENCE_EMBEDDING)]


def prepare_pairs(folder: Folder, recipe: Recipe, source: Sequence[str], trainings: Sequence[Phase]) -> Prepared:
    """Make pairs of the text, and judge the released model by those that are held out; what is there is kept."""
    found = prepare(folder, recipe.with_updates(1), source)  # the rows of masked words are made once
    data = folder.path / "data" / str(recipe.lengths[-1])
    with folder.step("pairs"):
        if not (data / PAIRS).exists():
            write_pairs(data, recipe.held_out, round(HALF_BYTES * recipe.lengths[-1]))
    run = folder.path / BEFORE
    if not History(run).finished:
        shutil.rmtree(run, ignore_errors=True)
        print("\n=== judging the released model", flush=True)
        path = folder.write(f"{BEFORE}.json", {**trainings[-1].config, "do_training": False})
        with folder.step("judgement before"):
            train(SENTENCE_EMBEDDING, path, name=BEFORE)
    passes_once = _lines(data / PAIRS) / PAIRS_OF_UPDATE  # updates
    return found._replace(tokens=round(passes_once * TOKENS_PER_UPDATE * REAL_TOKENS))


def write_pairs(data: Path, held_out: float, half: int) -> None:
    """Write pairs of a data set's sentences and of what is held out, each half of ``half`` bytes or more, and new."""
    files = read_corpus(data / CORPUS_FOLDER).files
    chosen = choose_held_out(files, held_out)
    seen: Set[str] = set()
    sides = {}
    for name, is_held_out in ((HELD_OUT, True), (PAIRS, False)):
        rests = (select(document, chosen, is_held_out) for document in read_documents(files))
        sides[name] = list(_unseen(rests, half, seen))
    count = len(sides[HELD_OUT])
    kept = min(count, MOST_PASSAGES)
    sides[HELD_OUT] = [sides[HELD_OUT][index * count // kept] for index in range(kept)]  # evenly spaced
    if min(map(len, sides.values())) < PAIRS_OF_UPDATE:
        what = f"{len(sides[PAIRS]):,} passages to train on and {kept:,} held out"
        raise UserError(f"{data}: {what}, of {2 * half} bytes or more, are too few; give more text")
    print(f"{len(sides[PAIRS]):,} pairs, and {kept:,} of {count:,} held-out ones")
    for name, pairs in sides.items():
        with replacing(data / name) as stream:
            for pair in pairs:
                stream.write(json.dumps(dict(zip(("anchor", "positive"), pair)), ensure_ascii=False).encode() + b"\n")


def _unseen(texts: Iterator[bytes], half: int, seen: Set[str]) -> Iterator[Pair]:
    """Yield the passages of documents whose halves are new, and add these to ``seen``."""
    for document in split_documents(texts):
        halves = list(passages(document, half))
        for pair in zip(halves[::2], halves[1::2]):
            if len({*pair}) == 2 and seen.isdisjoint(pair):
                seen.update(pair)
                yield pair


def passages(document: bytes, half: int) -> Iterator[str]:
    """Yield the runs of whole sentences of a document that have ``half`` bytes or more; a shorter rest is left out."""
    run: List[bytes] = []
    for sentence in re.split(rb"\r?\n", document):
        run.append(sentence)
        if sum(map(len, run)) + len(run) - 1 >= half:
            yield b" ".join(run).decode()
            run = []


def export(folder: Folder, recipe: Recipe, run: Path) -> Path:
    """Write the trained model as a folder of sentence-transformers that pools and scales as the released one does."""
    from checkpoints.pretrained.sentence_transformers import embedding_settings, write_modules

    model, weights = export_model(folder, run), released(str(recipe.start_from))
    settings = embedding_settings(weights)
    if settings is not None:
        write_modules(model, weights, settings, weights.architecture["hidden_size"])
    return model


def read_result(folder: Folder, recipe: Recipe, pace: Pace) -> Dict[str, Any]:
    """Return what came out, as JSON can represent it; see ``judgement.read_result``."""
    length = str(recipe.lengths[-1])
    run, before = read_run_folder(folder.path / length), read_run_folder(folder.path / BEFORE).scores
    what = f"held-out passages of {_lines(folder.path / 'data' / length / HELD_OUT):,}"
    return {
        "recalls": [[f"{what}: {words}", before[name], run.scores[name]] for name, words in RECALLS.items()],
        **dict.fromkeys(("loss", "right", "bits_per_byte", "unknown", "training_loss", "expected")),
        **{key: [] for key in ("baselines", "forecasts", "blanks")},
        "curves": {length: list(zip(*run.series(LOSS)))},
        "curve_of": "loss of pairs",
    }


def _lines(path: Path) -> int:
    with open(path, "rb") as lines:
        return sum(1 for _ in lines)


def commands(folder: Path) -> List[Tuple[str, str]]:
    """Return what can be done next with the model in a folder of ``run_from_text.py``, and by which command."""
    embed = ["--checkpoint", str(folder), "--file", "texts.txt", "--output", "embeddings.npy"]
    tune = ["--config", "configs/fine_tuning.json", "--pretrained-ckpt-path", str(folder), "--name", "pairs"]
    own = ["--embedding.train-file", "pairs.csv", "--embedding.text", "question", "answer"]
    return [
        ("Embed the lines of a file", start_command("tasks.embed", embed)),
        ("Train it on pairs of yours", start_command("run_sentence_embedding", [*tune, *own])),
    ]


WHAT = "a model of sentence-transformers, which learns from pairs of passages of the text"
SEARCH = Purpose(WHAT, SENTENCE_EMBEDDING, check, adapt, phases, prepare_pairs, export, read_result, commands)
