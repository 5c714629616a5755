"""Names of metrics that several packages share: machines report them, listeners log them, reports draw them."""

from __future__ import annotations

from typing import Iterable, List

LOSS = "loss"  # the sum of all losses
MLM_LOSS, NSP_LOSS = "mlm_loss", "nsp_loss"
F1, MACRO_F1 = "f1", "macro_f1"  # no task has both
LEARNING_RATE = "learning_rate"  # of the last update; not every platform reports it
THROUGHPUT = "throughput"  # samples per second
SEQUENCES_PER_PACK, TOKENS_PER_PACK = "sequences_per_pack", "tokens_per_pack"
# Of runs in low-precision formats: the number (not the mean) of updates in a period that were skipped because gradients
# overflowed, and the loss scale if it adapts.
OVERFLOWS, LOSS_SCALE = "overflows", "loss_scale"


_READABLE = {"mlm": "masked-LM", "nsp": "next-sentence", "f1": "F1"}


def readable(name: str) -> str:
    """Return the words of a name of a metric, a value or a figure, for people.

    Example:
        >>> readable("mlm_loss"), readable("totals.records")
        ('masked-LM loss', 'totals: records')
    """
    words = name.replace("_", " ").replace(".", ": ").split(" ")
    return " ".join(_READABLE.get(word, word) for word in words)


def is_loss(name: str) -> bool:
    """Return whether a metric is a loss, of which the lowest value is best."""
    return name == LOSS or name.endswith("_loss")


def part_losses(names: Iterable[str]) -> List[str]:
    """Return the losses whose sum is the total loss; the total itself if it is the only one.

    Example:
        >>> part_losses(["loss", "mlm_loss", "nsp_loss", "mlm_accuracy"])
        ['mlm_loss', 'nsp_loss']
    """
    losses = [name for name in names if is_loss(name)]
    return [name for name in losses if name != LOSS] or losses
