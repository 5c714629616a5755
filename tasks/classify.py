# PYTHON_ARGCOMPLETE_OK
"""``python -m tasks.classify --checkpoint RUN "a sentence" ["another"]`` classifies with a trained model.

With ``--file reviews.csv --output predictions.csv`` it classifies the rows of a table. A model of ``run_squad.py``
answers questions.
"""

from __future__ import annotations

import os
import sys

if not __package__:  # started by its path, from any folder
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence

from checkpoints.pretrained.weights import SPAN_HEAD
from data_utils.classification.benchmarks import TASKS as BENCHMARK_TASKS
from data_utils.classification.own import filled
from model.tasks import CLASSIFICATION, SQUAD, TASKS
from tasks import RestoredTask, prediction_config, restore_task, task_class
from tasks.file_predictions import (
    CHECKPOINT,
    FILE,
    OUTPUT,
    TEXT,
    WORD_COLUMN,
    Sample,
    add_model_flags,
    check_files,
    check_rows,
    check_sentences,
    column_number,
    is_table,
    sequence_length,
    token_field,
    words_in,
    write_predictions,
    write_tags,
)
from utilities.commands import make_parser, run_main
from utilities.errors import UserError
from utilities.progress import waiting
from utilities.tables import FORMATS, check_columns

if TYPE_CHECKING:  # imports TensorFlow, which --help and errors of the command line do not need
    from checkpoints.pretrained.pretrained import Pretrained

USUAL_LENGTH, USUAL_SQUAD_LENGTH = 128, 384
PREDICTED_TAGS = "prediction"  # the field of the tags in Hugging Face's JSON lines
FILE_PACKING = {"max_sequences_per_pack": 3}  # as in configs/packed.json: short texts share a row


def classify(options: argparse.Namespace) -> List[str]:
    """Return the lines to print; with a file, write its predictions.

    Raises:
        UserError: there is no such checkpoint, it is not a classifier, the task needs another number of texts, or the
            file cannot be used.
    """
    check_options(options)
    with waiting("loading TensorFlow"):
        from checkpoints.pretrained.opening import open_pretrained
        from training.prediction import Predictor

    if options.glue_task not in (None, *BENCHMARK_TASKS):
        raise UserError(f"--glue-task: there is no task {options.glue_task}; there are {', '.join(BENCHMARK_TASKS)}")
    start = open_pretrained(options.checkpoint, CHECKPOINT)
    name = trained_task(start)
    if name not in TASKS:
        raise UserError(f"{CHECKPOINT}: {start.origin} was trained for {name}, which is not a task of this program")
    task = task_class(name)
    if not hasattr(task, "describe"):
        what = f"{start.origin} was trained for {name}"
        raise UserError(f"{CHECKPOINT}: {what}; fine-tune it with {TASKS[CLASSIFICATION].program} first")
    trained = (start.settings.get("config") or {}) if start.own else {}
    config = prediction_config(
        glue_task=options.glue_task or trained.get("glue_task"),
        classification_data=None if options.glue_task else trained.get("classification_data"),
        squad=trained.get("squad") or {},
        max_seq_length=options.max_seq_length
        or trained.get("max_seq_length")
        or min(USUAL_SQUAD_LENGTH if name == SQUAD else USUAL_LENGTH, start.architecture["max_position_embeddings"]),
        vocab_file=options.vocab_file,
        packing=FILE_PACKING if options.file else {},
    )
    restored = restore_task(start, name, config)
    if options.file:
        return [predict_file(options, restored)]
    task, built, platform = restored
    built.model.run_eagerly = True  # tracing a graph takes longer than one prediction
    lines: List[str] = task.describe(Predictor(built.model, 1, platform), options.texts)
    return lines


def predict_file(options: argparse.Namespace, restored: RestoredTask) -> str:
    """Write the predictions for a table or for a file in CoNLL's columns, and return the line to print."""
    from training.prediction import EVALUATION_BATCH_SIZE, Predictor

    task, built, platform = restored
    source, output = options.file, options.output
    tags_words = hasattr(task, "tags")
    if is_table(source):
        read: Sample
        field = token_field(source) if tags_words and not options.text else None
        if field is None:
            columns = options.text or task.text_columns
            task.check_texts(len(columns))
            check_columns(source, columns)
            read, added, predict = filled(*columns), task.predicted_columns, task.predicted_rows
        else:
            read, added, predict = words_in(field), (PREDICTED_TAGS,), partial(tag_rows, task, origin=str(source))
        count = check_rows(source, read, output, added)
        total = None if task.name == SQUAD else count  # a question may have several windows
        predictor = Predictor(built.model, min(EVALUATION_BATCH_SIZE, count), platform, total=total)
        write_predictions(source, read, output, partial(predict, predictor))
        return f"predictions for {count:,} rows: {output}"
    if options.text or not tags_words:
        raise UserError(f"{FILE}: {source} is not a table ({', '.join(FORMATS)}), which {TEXT} and {task.name} need")
    count = check_sentences(source, options.word_column)
    predictor = Predictor(built.model, min(EVALUATION_BATCH_SIZE, count), platform, total=count)
    write_tags(source, output, partial(task.tags, predictor, origin=str(source)), options.word_column)
    return f"tags for {count:,} sentences: {output}"


def tag_rows(task: Any, predict: Any, sentences: Sequence[Sequence[str]], origin: str) -> List[Dict[str, Any]]:
    """Return the tags of the words of each row as its new column."""
    return [{PREDICTED_TAGS: tags} for tags in task.tags(predict, sentences, origin=origin)]


def check_options(options: argparse.Namespace) -> None:
    """Raise ``UserError`` unless the options name either texts, or a file to read and a new file to write."""
    if options.file is None:
        if options.text or options.output:
            raise UserError(f"{TEXT if options.text else OUTPUT} needs {FILE}; name the table of the texts")
        if not options.texts:
            raise UserError(f"there is no text to classify; write one, or name a table with {FILE}")
        return
    if options.texts:
        raise UserError(f"{FILE}: leave out the texts of the command line, or the file")
    if options.output is None:
        raise UserError(f"{OUTPUT} is not set; name the file of the predictions")
    check_files(options.file, options.output)


def trained_task(start: Pretrained) -> str:
    """Return the task that a checkpoint was trained for; classification if it does not say."""
    if start.own:
        return str(start.settings.get("task", CLASSIFICATION))
    architectures = start.settings.get("architectures") or ()
    if f"{SPAN_HEAD}.weight" in start.weights:  # Google's checkpoints name no class
        return SQUAD
    named = (name for name, facts in TASKS.items() if facts.hugging_face in architectures)
    return next((name for name in named if hasattr(task_class(name), "describe")), CLASSIFICATION)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command and return its exit status."""
    parser = make_parser(
        "tasks.classify",
        "Try a sentence, or a pair of sentences, on a model that run_seq_classification.py or"
        " run_token_classification.py has trained, or a question and its context on one of run_squad.py.",
    )
    add_model_flags(parser)
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="one text or two, depending on the task")
    parser.add_argument(
        FILE,
        type=Path,
        metavar="TABLE",
        help="predict the rows of a table instead (.csv, .tsv, .jsonl), or tag a file with a word on each line or"
        ' JSON Lines such as {"tokens": ["EU", "acts"]}',
    )
    what = "its column of texts, or two for pairs [as in training, else text; question context]"
    parser.add_argument(TEXT, nargs="+", metavar="COLUMN", help=what)
    what = "new table with the rows and their predictions (.csv, .tsv, .jsonl), or the lines with their tags"
    parser.add_argument(OUTPUT, type=Path, metavar="TABLE", help=what)
    what = "column of the words in a file of words, from 1 [the first]"
    parser.add_argument(WORD_COLUMN, type=column_number, metavar="N", help=what)
    parser.add_argument("--glue-task", metavar="NAME", help="benchmark task of the model [as the checkpoint says]")
    what = f"tokens at most [as in training, else {USUAL_LENGTH}, or {USUAL_SQUAD_LENGTH} for questions]"
    parser.add_argument("--max-seq-length", type=sequence_length, metavar="N", help=what)
    return run_main(parser, lambda options: print(*classify(options), sep="\n"), arguments)


if __name__ == "__main__":
    sys.exit(main())
