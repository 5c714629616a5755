"""How far a run has come: all that is needed, with weights and optimizer, to go on as if nothing had happened."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, Optional, Tuple

from checkpoints.folder import Checkpoint


@dataclasses.dataclass(frozen=True)
class Position:
    """Where training begins, or goes on.

    The data that update u consumes is a function of the seed, of u and of ``skipped``; see
    :func:`data_utils.records.pipeline.training_dataset`.

    Attributes:
        step: weight updates done.
        skipped: numbers of the global batches that were left out after a divergence, ascending.
        rewinds: how often the run went back.
        seconds: of training before.
        checkpoint: holds the state; None where there is none yet.
    """

    step: int = 0
    skipped: Tuple[int, ...] = ()
    rewinds: int = 0
    seconds: float = 0.0
    checkpoint: Optional[Checkpoint] = None

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Position:
        """The position that a checkpoint was written at."""
        facts = checkpoint.facts
        assert facts is not None, "a bare TensorFlow checkpoint has no position"
        skipped = tuple(facts["data"]["skipped_batches"])
        return cls(facts["step"], skipped, facts["rewinds"], facts["seconds"], checkpoint)

    def facts(self, step: int, seconds: float, samples_per_update: int, identity: str) -> Dict[str, Any]:
        """What a checkpoint says of its position.

        Args:
            step: weight updates done.
            seconds: of training until then.
            samples_per_update: of the global batch; in packs, on average.
            identity: of the data.
        """
        return {
            "data": {
                "updates": step,
                "samples_per_update": samples_per_update,
                "skipped_batches": list(self.skipped),
                "identity": identity,
            },
            "rewinds": self.rewinds,
            "seconds": round(seconds, 3),
        }
