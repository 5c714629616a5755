"""``python -m tasks.classify --checkpoint RUN "a sentence" ["another"]`` classifies with a trained model."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, List, Optional, Sequence

from data_utils.classification.benchmarks import TASKS as BENCHMARK_TASKS
from model.tasks import CLASSIFICATION, TASKS
from tasks import prediction_config, restored, task_class
from utilities.commands import make_parser, run_main
from utilities.errors import UserError

if TYPE_CHECKING:  # imports TensorFlow, which --help and errors of the command line do not need
    from checkpoints.pretrained.pretrained import Pretrained

CHECKPOINT = "--checkpoint"
USUAL_LENGTH = 128


def classify(options: argparse.Namespace) -> List[str]:
    """Return the lines to print.

    Raises:
        UserError: there is no such checkpoint, it is not a classifier, or the task needs another number of texts.
    """
    from checkpoints.pretrained.opening import open_pretrained
    from training.evaluation import Predictor

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
        max_seq_length=options.max_seq_length
        or trained.get("max_seq_length")
        or min(USUAL_LENGTH, start.architecture["max_position_embeddings"]),
        vocab_file=options.vocab_file,
    )
    model, built, platform = restored(start, name, config)
    built.model.run_eagerly = True  # tracing a graph takes longer than one prediction
    lines: List[str] = model.describe(Predictor(built.model, 1, platform), options.texts)
    return lines


def trained_task(start: Pretrained) -> str:
    """Return the task that a checkpoint was trained for; classification if it does not say."""
    if start.own:
        return str(start.settings.get("task", CLASSIFICATION))
    architectures = start.settings.get("architectures") or ()
    named = (name for name, facts in TASKS.items() if facts.hugging_face in architectures)
    return next((name for name in named if hasattr(task_class(name), "describe")), CLASSIFICATION)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command and return its exit status."""
    parser = make_parser(
        "tasks.classify",
        "Try a sentence, or a pair of sentences, on a model that run_seq_classification.py or"
        " run_token_classification.py has trained.",
    )
    parser.add_argument(
        CHECKPOINT,
        required=True,
        metavar="PATH",
        help="a run's folder (its best checkpoint is taken, or else the newest), a checkpoint, or a Hugging Face"
        " folder",
    )
    parser.add_argument("texts", nargs="+", metavar="TEXT", help="one text or two, depending on the task")
    parser.add_argument("--glue-task", metavar="NAME", help="benchmark task of the model [as the checkpoint says]")
    parser.add_argument(
        "--max-seq-length", type=int, metavar="N", help=f"tokens at most [as in training, else {USUAL_LENGTH}]"
    )
    parser.add_argument("--vocab-file", metavar="PATH", help="vocab.txt or tokenizer.json [the one of the checkpoint]")
    return run_main(parser, lambda options: print(*classify(options), sep="\n"), arguments)


if __name__ == "__main__":
    sys.exit(main())
