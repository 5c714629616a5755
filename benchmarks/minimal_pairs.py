# PYTHON_ARGCOMPLETE_OK
"""``python -m benchmarks.minimal_pairs --checkpoint RUN --data FILES`` scores a masked language model on minimal pairs.

A minimal pair is a good sentence and a bad one that differ in little else (BLiMP: Warstadt et al. 2020, arXiv
1912.00582). The model is right if the good sentence has the higher pseudo-log-likelihood (Salazar et al. 2020, arXiv
1910.14659, equation 1): the sum of the log-probabilities of its word pieces, each of them masked alone.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Dict, NamedTuple, Optional, Sequence

import numpy as np

from benchmarks.pair_files import FIELD, PARADIGM, Pair, read_pairs, word_pieces
from data_utils.command_line import positive
from tasks.file_predictions import CHECKPOINT, add_model_flags
from utilities.commands import make_parser, run_main
from utilities.errors import UserError
from utilities.files import write_atomically
from utilities.tables import FORMATS, aligned


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


def pair_scores(pairs: Sequence[Pair], checkpoint: str, vocab_file: Optional[str] = None) -> np.ndarray:
    """Return the pseudo-log-likelihoods of the good and the bad sentences, (pairs, 2) float64.

    Args:
        pairs: the pairs.
        checkpoint: path of the model.
        vocab_file: its vocabulary; None: the one of the checkpoint.
    """
    from benchmarks.masked_pieces import log_likelihoods
    from checkpoints.pretrained.opening import open_pretrained
    from data_utils.tokenizer import make_tokenizer
    from tasks.masked_words import restore_masked_words

    model = restore_masked_words(open_pretrained(checkpoint, CHECKPOINT), vocab_file)
    tokenizer = make_tokenizer(*model.settings)  # as in the preparation of corpora
    sentences = word_pieces(pairs, tokenizer, model.longest - 2)
    numbers = {sentence: number for number, sentence in enumerate(dict.fromkeys(sentences))}  # each is scored once
    scores = log_likelihoods(model, list(numbers))
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
        "benchmarks.minimal_pairs",
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
