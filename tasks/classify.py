# PYTHON_ARGCOMPLETE_OK
"""``python -m tasks.classify --checkpoint RUN "a sentence" ["another"]`` classifies with a trained model.

With ``--file reviews.csv --output predictions.csv`` it classifies the rows of a table. A model of ``run_squad.py``
answers questions.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence

from data_utils.classification.benchmarks import TASKS as BENCHMARK_TASKS
from data_utils.classification.user_task import filled
from data_utils.command_line import positive
from model.tasks import CLASSIFICATION, PRETRAINING, SENTENCE_EMBEDDING, TOKEN_CLASSIFICATION
from tasks.file_predictions import (
    CHECKPOINT,
    FILE,
    OUTPUT,
    TEXT,
    USUAL_SQUAD_LENGTH,
    WORD_COLUMN,
    add_model_flags,
    add_precision_flag,
    check_files,
    check_rows,
    check_sentences,
    check_text_columns,
    is_table,
    sequence_length,
    token_field,
    with_predictions,
    words_in,
    write_tags,
)
from tasks.named_models import check_answers, without_head
from utilities.commands import make_parser, run_main
from utilities.errors import UserError
from utilities.progress import waiting
from utilities.table_output import write_table
from utilities.tables import FORMATS, read_table

if TYPE_CHECKING:  # imports TensorFlow, which --help and errors of the command line do not need
    from tasks.answering import Model

TAGS = "prediction"  # the field of the tags in Hugging Face's JSON lines


def classify(options: argparse.Namespace) -> List[str]:
    """Return the lines to print; with a file, write its predictions."""
    check_options(options)
    if options.glue_task not in (None, *BENCHMARK_TASKS):
        raise UserError(f"--glue-task: there is no task {options.glue_task}; there are {', '.join(BENCHMARK_TASKS)}")
    check_answers(options.checkpoint, CHECKPOINT)
    if options.file and is_table(options.file):
        next(read_table(options.file), None)  # refuses a file that cannot be read
    with waiting("loading TensorFlow"):
        from checkpoints.pretrained.opening import open_pretrained
        from tasks.answering import restored_model, trained_task

    start = open_pretrained(options.checkpoint, CHECKPOINT)
    task = trained_task(start) or CLASSIFICATION
    if task in (PRETRAINING, SENTENCE_EMBEDDING):
        raise UserError(without_head(start.origin, task, CHECKPOINT))
    given = {name: getattr(options, name) for name in ("vocab_file", "max_seq_length", "precision")}
    model = restored_model(start, task, glue_task=options.glue_task, **given)
    if options.file:
        return [predict_file(options, model)]
    model.answering.check_texts(len(options.texts))
    lines: List[str] = model.answering.lines(model(tuple(options.texts)))
    return lines


def predict_file(options: argparse.Namespace, model: Model) -> str:
    """Write the predictions for a table or for a file in CoNLL's columns, and return the line to print."""
    task, source, output = model.answering, options.file, options.output
    tags_words = model.task == TOKEN_CLASSIFICATION
    if is_table(source):
        field = token_field(source) if tags_words and not options.text else None
        columns = options.text or task.text_columns
        if field is None:
            task.check_texts(len(columns))
            check_text_columns(source, columns)
        read, added = (partial(filled, columns), task.predicted_columns) if field is None else (words_in(field), [TAGS])

        rows = check_rows(source, read, output, added)
        with model.call(rows.total - len(rows.empty), str(source)) as call:

            def predict(samples: Sequence[Any]) -> List[Dict[str, Any]]:
                if field is None:
                    return [task.row(answer) for answer in task.answers(call, samples)]
                return [{TAGS: tags} for tags in task.tags(call, samples)]

            write_table(output, with_predictions(source, read, added, predict))
        return f"predictions for {rows.total:,} rows: {output}{rows.note()}"
    if options.text or not tags_words:
        raise UserError(f"{FILE}: {source} is not a table ({', '.join(FORMATS)}), which {TEXT} and {task.name} need")
    count = check_sentences(source, options.word_column)
    with model.call(count, str(source)) as call:
        write_tags(source, output, partial(task.tags, call), options.word_column)
    return f"tags for {count:,} sentences: {output}"


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


def main(arguments: Optional[Sequence[str]] = None) -> int:
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
    parser.add_argument(WORD_COLUMN, type=positive, metavar="N", help=what)
    parser.add_argument("--glue-task", metavar="NAME", help="benchmark task of the model [as the checkpoint says]")
    add_precision_flag(parser)
    what = f"tokens at most [as in training, or as the tokenizer's files say, but {USUAL_SQUAD_LENGTH} for questions]"
    parser.add_argument("--max-seq-length", type=sequence_length, metavar="N", help=what)
    return run_main(parser, lambda options: print(*classify(options), sep="\n"), arguments)


if __name__ == "__main__":
    sys.exit(main())
