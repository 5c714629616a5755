"""``python -m tasks.classify --checkpoint RUN "a sentence" ["another"]``: what a trained classifier says of it."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple

from utilities.errors import UserError

if TYPE_CHECKING:  # with TensorFlow, which --help and errors of the command line can do without
    from checkpoints.pretrained.pretrained import Pretrained

CHECKPOINT = "--checkpoint"
BAR_WIDTH = 30
MOST_SHOWN = 5


def make_parser() -> argparse.ArgumentParser:
    """The command's options."""
    parser = argparse.ArgumentParser(
        prog="python -m tasks.classify",
        description="Try a sentence, or a pair of sentences, on a model that run_seq_classification.py has trained.",
    )
    parser.add_argument(
        CHECKPOINT,
        required=True,
        metavar="PATH",
        help="a run's folder (its newest checkpoint is taken), a checkpoint, or a Hugging Face folder",
    )
    parser.add_argument("texts", nargs="+", metavar="TEXT", help="one text or two, as the task has them")
    parser.add_argument("--glue-task", metavar="NAME", help="task of the model [as the checkpoint says]")
    parser.add_argument("--max-seq-length", type=int, metavar="N", help="tokens at most [as in training, else 128]")
    parser.add_argument("--vocab-file", metavar="FILE", help="vocab.txt [the one that belongs to the checkpoint]")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def classify(options: argparse.Namespace) -> List[str]:
    """The lines to print.

    Raises:
        UserError: there is no such checkpoint, it is no classifier, or the task takes another number of texts.
    """
    from checkpoints.pretrained.opening import open_pretrained
    from data_utils.classification.benchmarks import TASKS

    start = open_pretrained(options.checkpoint, CHECKPOINT)
    trained = training_config_of(start)
    name = options.glue_task or trained.get("glue_task")
    if name is None:
        raise UserError(f"{CHECKPOINT}: {start.origin} does not say what it classifies; add --glue-task NAME")
    if name not in TASKS:
        raise UserError(f"--glue-task: there is no task {name}; there are {', '.join(TASKS)}")
    wanted = 1 + TASKS[name].is_pair
    if len(options.texts) != wanted:
        raise UserError(f"{name} takes {wanted} text{'s' * (wanted > 1)}, not {len(options.texts)}; quote each of them")
    length = options.max_seq_length or trained.get("max_seq_length") or 128
    settings = {"glue_task": name, "max_seq_length": length, "vocab_file": options.vocab_file}
    return shown(name, logits_of(start, settings, tuple(options.texts)))


def training_config_of(start: Pretrained) -> Dict[str, Any]:
    """The config that a checkpoint of this project was trained with; empty for one of another origin.

    Raises:
        UserError: it was trained for something else.
    """
    if not start.own:
        return {}
    trained_for = start.settings.get("task", "classification")
    if trained_for != "classification":
        what = f"{start.origin} was trained for {trained_for}"
        raise UserError(f"{CHECKPOINT}: {what}; fine-tune it with run_seq_classification.py first")
    return start.settings.get("config") or {}


def logits_of(start: Pretrained, settings: Dict[str, Any], texts: Tuple[str, ...]) -> Any:
    """The model's outputs for one sample, ``(classes,)``.

    Args:
        settings: task, length and vocabulary, as a config has them.
    """
    from tasks.classification import Classification
    from training.architecture import resolved_architecture
    from training.prediction import predictor
    from training.trainer import platform_of
    from utilities.config.schema import TrainingConfig

    values = {
        **settings,
        "do_training": False,
        "do_validation": False,
        "embedding_serialization_factor": 1,
        "execution": {"platform": "software", "xla": False},
    }
    config = TrainingConfig.model_validate(values)
    architecture = resolved_architecture(config, start)
    task = Classification(config, architecture, start)
    platform = platform_of(config)
    built = task.build(platform, start.fill_source)
    start.load_blocks(built.blocks)
    return task.logits(predictor(built.model, 1, platform), [texts])[0]


def shown(task_name: str, logits: Any) -> List[str]:
    """Classes with their probabilities, the likeliest first; or the score."""
    import numpy as np

    from data_utils.classification.benchmarks import TASKS

    task = TASKS[task_name]
    if task.is_regression:
        low, high = task.score_range
        return [f"{float(np.clip(logits[0], low, high)):.2f} on a scale from {low:g} to {high:g}"]
    weights = np.exp(logits - np.max(logits))
    probabilities = weights / weights.sum()
    order = np.argsort(-probabilities, kind="stable")[:MOST_SHOWN].tolist()
    width = max(len(task.labels[number].name) for number in order)
    lines = []
    for number in order:
        share = float(probabilities[number])
        lines.append(f"{task.labels[number].name:<{width}}  {share:7.2%}  {'█' * round(share * BAR_WIDTH)}".rstrip())
    return lines


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Runs the command; returns its exit status."""
    options = make_parser().parse_args(arguments)
    try:
        for line in classify(options):
            print(line)
    except (UserError, OSError) as error:
        if options.debug:
            raise
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
