"""When each stage works on which micro batch.

A pipeline runs the same iteration again and again. In iteration ``i`` stage ``s`` runs the forward pass of micro batch
``i - forward[s]`` and the backward pass of micro batch ``i - backward[s]``; where that number is below 0 or past the
last micro batch (while the pipeline fills or drains) the stage idles. All schedules give the same gradients. They
differ in what may run at the same time, and in how many micro batches are on their way, whose inputs each stage keeps:

==============  ==============================  =================  =========================
schedule        at the same time                 kept by stage s    extra iterations
==============  ==============================  =================  =========================
sequential      one stage only                   1                  0
grouped         all forward, then all backward   2 (S - 1 - s) + 1  2 (S - 1)
interleaved     forward and backward by turns    S - s, or 1 more   S - 1
==============  ==============================  =================  =========================

The last stage runs forward and backward at once, in its backward slot.

Sources: Huang et al. 2019 (GPipe), Narayanan et al. 2019 (PipeDream, one forward one backward), and the documentation
of Graphcore's pipelining (grouped, interleaved, sequential).
"""

from __future__ import annotations

import dataclasses
from typing import Tuple

from utilities.errors import UserError

FORWARD, BACKWARD = "forward", "backward"
Job = Tuple[str, int]  # FORWARD or BACKWARD, and the stage


@dataclasses.dataclass(frozen=True)
class Schedule:
    """A pipeline's timing.

    Attributes:
        forward, backward: by stage, how many iterations the stage is behind.
        phases: of an iteration, one after the other; jobs of a phase run at the same time.
    """

    forward: Tuple[int, ...]
    backward: Tuple[int, ...]
    phases: Tuple[Tuple[Job, ...], ...]

    @property
    def stages(self) -> int:
        """Number of stages."""
        return len(self.forward)

    def iterations(self, micro_batches: int) -> int:
        """Iterations for so many micro batches, filling and draining included."""
        return micro_batches + max(self.backward)

    def kept(self, stage: int) -> int:
        """Micro batches whose inputs a stage holds at the most."""
        return self.backward[stage] - self.forward[stage] + 1

    def busy_fraction(self, micro_batches: int, backward_cost: float = 2.0) -> float:
        """Share of the time in which a stage works, if all stages take equally long.

        Args:
            micro_batches: of an update.
            backward_cost: time of a backward pass in forward passes (3 with recomputation).
        """
        work = 1.0 + backward_cost
        lengths = {FORWARD: 1.0, BACKWARD: backward_cost}
        turn = sum(max(self._length(job, lengths) for job in phase) for phase in self.phases)
        return micro_batches * work / (self.iterations(micro_batches) * turn)

    def _length(self, job: Job, lengths: dict) -> float:
        kind, stage = job
        last = stage == self.stages - 1
        return sum(lengths.values()) if last and kind == BACKWARD else lengths[kind]


def make_schedule(name: str, stages: int) -> Schedule:
    """The schedule of ``ipu_config.pipeline_schedule``.

    Args:
        name: ``grouped``, ``interleaved`` or ``sequential``.
        stages: S, at least 1.

    Raises:
        UserError: no schedule has that name.
    """
    last = stages - 1
    if name == "sequential":
        one_by_one = [(FORWARD, s) for s in range(last)] + [(BACKWARD, s) for s in range(last, -1, -1)]
        return Schedule((0,) * stages, (0,) * stages, tuple((job,) for job in one_by_one))
    if name == "grouped":
        forward = tuple(range(stages))
        backward = tuple(2 * last - s for s in range(stages))
        phases = tuple((FORWARD, s) for s in range(last)), tuple((BACKWARD, s) for s in range(stages))
        return Schedule(forward, backward, tuple(phase for phase in phases if phase))
    if name == "interleaved":
        # In half iterations: forward of micro batch m at 2m + s, backward at 2m + 2S - 1 - s.
        starts = {(FORWARD, s): s for s in range(last)}
        starts.update({(BACKWARD, s): 2 * stages - 1 - s for s in range(stages)})
        halves = (tuple(job for job, start in starts.items() if start % 2 == half) for half in (0, 1))
        return Schedule(
            tuple(s // 2 for s in range(stages)),
            tuple((2 * stages - 1 - s) // 2 for s in range(stages)),
            tuple(half for half in halves if half),
        )
    raise UserError(f"ipu_config.pipeline_schedule is {name!r}; use grouped, interleaved or sequential")
