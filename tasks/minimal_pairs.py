# PYTHON_ARGCOMPLETE_OK
"""``python -m tasks.minimal_pairs --checkpoint RUN --data FILES`` scores a masked language model on minimal pairs.

A minimal pair is a good sentence and a bad one that differ in little else (BLiMP: Warstadt et al. 2020, arXiv
1912.00582). The model is right if the good sentence has the higher pseudo-log-likelihood (Salazar et al. 2020, arXiv
1910.14659, equation 1): the sum of the log-probabilities of its word pieces, each of them masked alone.

N sentences · S tokens of a row · R rows of a batch, each a sentence with one masked piece · V vocabulary
"""

from __future__ import annotations

import os
import sys

if not __package__:  # started by its path, from any folder
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Optional, Sequence

import numpy as np

from data_utils.command_line import positive
from data_utils.minimal_pairs import FIELD, PARADIGM, Pair, read_pairs, word_pieces
from data_utils.tokenizer import make_tokenizer
from data_utils.tokenizer_files import CLASSIFIER, MASK, PADDING, SEPARATOR
from model.tasks import PRETRAINING, TASKS
from tasks import prediction_config, restore_task
from tasks.file_predictions import CHECKPOINT, add_model_flags
from utilities.commands import make_parser, run_main
from utilities.errors import UserError
from utilities.files import write_atomically
from utilities.progress import progress_bar
from utilities.tables import FORMATS, aligned

if TYPE_CHECKING:  # imports TensorFlow, which --help and errors of the command line do not need
    from checkpoints.pretrained.pretrained import Pretrained
    from model.blocks import Block

LENGTHS = 8  # rows are padded to multiples of it
BATCH_TOKENS = 2048  # R·S; on CPUs, larger batches are not faster

# Returns the log-probabilities (R,) for ids (R, S), mask (R, S), masked positions (R, 1) and true pieces (R, 1).
Score = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], Any]


class Result(NamedTuple):
    """The result of a group of pairs.

    Attributes:
        pairs: number of pairs.
        right: share of the pairs in which the good sentence has the higher score; a tie counts half.
        standard_error: standard error of that share, which is the deviation of the outcomes (0, ½ or 1) divided by the
            root of their number.
        ties: number of pairs whose scores are equal, as those of sentences of the same word pieces always are.
    """

    pairs: int
    right: float
    standard_error: float
    ties: int


def summarize(differences: np.ndarray) -> Result:
    """Return the result of pairs by the differences of their scores, good minus bad."""
    outcomes = (np.sign(differences) + 1) / 2
    error = outcomes.std() / np.sqrt(len(outcomes))
    return Result(len(outcomes), float(outcomes.mean()), float(error), int(np.sum(differences == 0)))


def by_group(names: Sequence[str], differences: np.ndarray) -> Dict[str, Result]:
    """Return the result of each group of pairs, in alphabetical order; pairs without a name belong to none."""
    groups = np.array(names)
    return {name: summarize(differences[groups == name]) for name in sorted({*names} - {""})}


def pseudo_log_likelihoods(
    sentences: Sequence[Sequence[int]], special: Sequence[int], longest: int, score: Score
) -> np.ndarray:
    """Return the pseudo-log-likelihood of each sentence, (N,) float64, in nats.

    Args:
        sentences: ids of each sentence's word pieces, without special tokens.
        special: ids of [PAD], [CLS], [SEP] and [MASK].
        longest: positions of the model.
        score: the model.
    """
    padding, first, last, mask = special
    lengths = np.array([len(pieces) + 2 for pieces in sentences])
    widths = np.minimum(-(-lengths // LENGTHS) * LENGTHS, longest)
    totals = np.zeros(len(sentences))
    with progress_bar(int(np.sum(lengths - 2)), "scored", "word pieces") as progress:
        for width in np.unique(widths).tolist():
            chosen = np.flatnonzero(widths == width)
            ids = np.full((len(chosen), width), padding, np.int32)
            for row, number in zip(ids, chosen.tolist()):
                row[: lengths[number]] = [first, *sentences[number], last]
            columns, ends = np.arange(width), lengths[chosen, None] - 1
            real = (columns <= ends).astype(np.int32)
            owners, positions = np.nonzero((columns > 0) & (columns < ends))  # every word piece of these sentences
            size = max(1, BATCH_TOKENS // width)
            for begin in range(0, len(owners), size):
                count = min(size, len(owners) - begin)
                batch = np.minimum(np.arange(begin, begin + size), len(owners) - 1)  # repeats the last row at the end
                owner, position = owners[batch], positions[batch, None].astype(np.int32)
                rows = ids[owner]
                targets = np.take_along_axis(rows, position, axis=1)
                np.put_along_axis(rows, position, mask, axis=1)
                scores = np.asarray(score(rows, real[owner], position, targets))
                np.add.at(totals, chosen[owner[:count]], scores[:count])
                progress.update(count)
    return totals


def open_model(checkpoint: str) -> Pretrained:
    """Open a checkpoint that has a masked-LM head.

    Raises:
        UserError: there is no such checkpoint, or it has no masked-LM head.
    """
    from checkpoints.pretrained.opening import open_pretrained
    from checkpoints.pretrained.weights import TRANSFORM, WORD_BIAS

    start = open_pretrained(checkpoint, CHECKPOINT)
    transform = [f"{TRANSFORM}.{name}" for name in ("dense.weight", "dense.bias", "LayerNorm.weight", "LayerNorm.bias")]
    missing = {WORD_BIAS, *([] if start.own else transform)} - {*start.weights, *start.neutral_weights}
    if missing:
        fix = f"name a run of {TASKS[PRETRAINING].program}, a BertForPreTraining or a BertForMaskedLM"
        raise UserError(f"{CHECKPOINT}: {start.origin} has no masked-LM head ({min(missing)} is missing); {fix}")
    return start


def score_with(blocks: List[Block]) -> Score:
    """Return the function that scores rows with a model; it is compiled once for each shape."""
    from execution.interface import cross_entropy
    from keras_extensions.backend import tf
    from model.blocks import run_blocks

    @tf.function(jit_compile=True)
    def compiled(ids: tf.Tensor, mask: tf.Tensor, positions: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        rows = {"input_ids": ids, "input_mask": mask, "segment_ids": tf.zeros_like(ids)}
        logits = run_blocks(blocks, {**rows, "masked_lm_positions": positions})["masked_lm"]  # (R, 1, V)
        return -cross_entropy(logits, targets)[:, 0]

    def score(*arrays: np.ndarray) -> Any:
        tensors = [tf.constant(array) for array in arrays]
        # A direct call with several shapes in a row would log a warning.
        return compiled.get_concrete_function(*map(tf.TensorSpec.from_tensor, tensors))(*tensors)

    return score


def pair_scores(pairs: Sequence[Pair], checkpoint: str, vocab_file: Optional[str] = None) -> np.ndarray:
    """Return the pseudo-log-likelihoods of the good and the bad sentences, (pairs, 2) float64.

    Args:
        pairs: the pairs.
        checkpoint: path of the model.
        vocab_file: its vocabulary; None: the one of the checkpoint.

    Raises:
        UserError: the checkpoint or a sentence cannot be used.
    """
    from training.initial_weights import resolved_architecture, tokenizer_settings

    start = open_model(checkpoint)
    config = prediction_config(
        vocab_file=vocab_file, max_seq_length=LENGTHS, max_predictions_per_seq=1, use_next_sentence=False
    )
    architecture = resolved_architecture(config, start)
    vocabulary, lower_case = tokenizer_settings(config, architecture, start)
    tokenizer, longest = make_tokenizer(vocabulary, lower_case), architecture.max_position_embeddings
    sentences = word_pieces(pairs, tokenizer, longest - 2)
    numbers = {sentence: number for number, sentence in enumerate(dict.fromkeys(sentences))}  # each is scored once
    special = [vocabulary.piece_id(token) for token in (PADDING, CLASSIFIER, SEPARATOR, MASK)]
    score = score_with(restore_task(start, PRETRAINING, config).built.blocks)
    scores = pseudo_log_likelihoods(list(numbers), special, longest, score)
    return scores[[numbers[sentence] for sentence in sentences]].reshape(-1, 2)


def run(options: argparse.Namespace) -> None:
    """Print the results by paradigm, by field and of all pairs, and write them if asked to."""
    output: Optional[Path] = options.output
    if output is not None and (output.is_dir() or not output.parent.is_dir()):
        raise UserError(f"--output: {output} is not a file in a folder that exists; correct the path")
    pairs = list(read_pairs(Path(options.data), options.good, options.bad, options.limit))
    good, bad = pair_scores(pairs, options.checkpoint, options.vocab_file).T
    results = {
        "paradigm": by_group([pair.paradigm for pair in pairs], good - bad),
        "field": by_group([pair.field for pair in pairs], good - bad),
        "all": {"all pairs": summarize(good - bad)},
    }
    rows = []
    for title, group in results.items():
        if group:  # pairs may have no field
            rows.append([title, "pairs", "right", "± s.e.", "ties"])
        for name, (count, right, error, ties) in group.items():
            rows.append([name, f"{count:,}", f"{right:.1%}", f"{error:.1%}", f"{ties:,}"])
    print("\n".join(aligned(rows, "<>")))
    if output is not None:
        by_name = {key: {name: result._asdict() for name, result in group.items()} for key, group in results.items()}
        write_atomically(output, json.dumps(by_name, indent=2) + "\n")


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command and return its exit status."""
    parser = make_parser(
        "tasks.minimal_pairs",
        "Score a masked language model on minimal pairs, such as BLiMP's: how often does it prefer the good sentence?",
    )
    add_model_flags(parser, ", with a masked-LM head")
    what = (
        f"a file with a pair in each row ({', '.join(FORMATS)}), or a folder of them; {PARADIGM} and {FIELD} group them"
    )
    parser.add_argument("--data", required=True, metavar="PATH", help=what)
    for name in ("good", "bad"):
        what = f"column of the {name} sentences [%(default)s]"
        parser.add_argument(f"--{name}", default=f"sentence_{name}", metavar="COLUMN", help=what)
    parser.add_argument("--limit", type=positive, metavar="N", help="take the first N pairs of each file [all]")
    parser.add_argument("--output", type=Path, metavar="FILE", help="also write the results as JSON")
    return run_main(parser, run, arguments)


if __name__ == "__main__":
    sys.exit(main())
