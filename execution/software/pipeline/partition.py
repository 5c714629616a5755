"""Which tensors cross from stage to stage.

Works on blocks, whose ``reads`` and ``writes`` name the tensors; knows neither TensorFlow nor BERT.
"""

from __future__ import annotations

from typing import List, NamedTuple, Protocol, Sequence, Tuple


class NamedBlock(Protocol):
    """What a block declares."""

    name: str
    reads: Tuple[str, ...]
    writes: Tuple[str, ...]


class StageTensors(NamedTuple):
    """Names of a stage's tensors.

    Attributes:
        from_batch: inputs of the model that the stage's blocks read.
        received: from the stage before.
        sent: to the stage after; of the last stage, the model's outputs.
    """

    from_batch: Tuple[str, ...]
    received: Tuple[str, ...]
    sent: Tuple[str, ...]


def stage_tensors(
    stages: Sequence[Sequence[NamedBlock]], model_inputs: Sequence[str], outputs: Sequence[str]
) -> List[StageTensors]:
    """What each stage takes and gives; a tensor that only a later stage needs is handed on.

    Args:
        stages: blocks of each stage.
        model_inputs: tensors of a micro batch, at hand everywhere.
        outputs: tensors that the last stage must give.

    Example:
        With ``emb`` writing ``hidden`` in stage 0 and ``pool`` reading it in stage 2, stage 1 receives and sends it.
    """
    tensors: List[StageTensors] = []
    needed = tuple(outputs)
    for blocks in reversed(stages):
        sent = needed
        for block in reversed(blocks):
            needed = tuple(name for name in needed if name not in block.writes)
            needed += tuple(name for name in block.reads if name not in needed)
        from_batch = tuple(name for name in needed if name in model_inputs)
        needed = tuple(name for name in needed if name not in model_inputs)
        tensors.insert(0, StageTensors(from_batch, needed, sent))
    assert not needed, f"no block writes {', '.join(needed)}"
    return tensors
