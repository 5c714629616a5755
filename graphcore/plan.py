"""What a plan says of IPUs: memory, parameters and operations of each, waiting, communication.

Only what is exact is counted. Activations, temporaries and code, which an IPU's compiler determines, are not estimated.
"""

from __future__ import annotations

from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from graphcore.effects import effects_table
from graphcore.rules import number_of_ipus
from model.architecture import block_flops
from pipeline.schedule import BACKWARD, FORWARD, Job, idle_fraction, make_schedule, simulate
from planning.estimates import HALF, Planned
from settings.loading import LoadedConfig
from settings.schema import TrainingConfig
from utilities.tables import counted, titled

MEGABYTE = 10**6
IN_PROCESSOR_MEMORY = 900 * MEGABYTE  # of one Mk2 IPU
STREAMING_MEMORY = 64_000 * MEGABYTE  # minimum for one IPU in the published systems

SCHEDULES = ("grouped", "interleaved", "sequential")
LONGEST_SIMULATION = 200  # micro batches; for longer updates, the share of filling and draining is scaled

Row = Tuple[str, ...]


def ipus_row(config: TrainingConfig, everything: bool) -> Iterator[Row]:
    """Yield the number of IPUs; ``everything``: also if the run is not on IPUs."""
    if everything or config.runs_on_ipus:
        each, replicas = number_of_ipus(config.ipu_config), config.global_batch.replicas
        yield "IPUs", f"{each * replicas} = {each} per replica × {replicas} replicas"


def parameters_by_ipu(run: Planned) -> Iterator[str]:
    of_stages = [
        (str(number), str(device), f"{run.parameters(stage):,}", counted(stage))
        for number, (stage, device) in enumerate(zip(run.stages, run.devices))
    ]
    yield from titled("Parameters by stage", ("stage", "IPU", "parameters", "blocks"), of_stages, "<<><")
    of_ipus = [(str(ipu), f"{count:,}") for ipu, count in enumerate(parameters(run))]
    yield from titled("Parameters by IPU", ("IPU", "parameters"), of_ipus, "<>")


def ipu_tables(loaded: LoadedConfig, run: Optional[Planned], processes: int, everything: bool) -> Iterator[str]:
    """Yield what stock TensorFlow ignores, and memory and balance of IPUs; ``everything``: of any run."""
    if everything:
        yield from effects_table(loaded, processes)
    if run is not None and (everything or run.config.runs_on_ipus):
        yield from memory_table(run)
        yield from titled("Pipeline", (), pipeline_rows(run))


def memory_table(run: Planned) -> Iterator[str]:
    """Yield each IPU's memory for weights, gradients and moments."""
    used = ipu_memory(run)
    rows: List[Row] = [(str(number), *map(_mega, ipu), _mega(sum(ipu))) for number, ipu in enumerate(used)]
    title = f"Memory by IPU, in MB of {_mega(IN_PROCESSOR_MEMORY)}, without activations, temporaries and code"
    yield from titled(title, ("IPU", *IpuMemory._fields, "together"), rows, ">")
    streaming = streaming_memory(run)
    where = f"{_mega(streaming)} MB of {_mega(STREAMING_MEMORY)} on the IPU with most"
    yield f"Streaming memory for optimizer state: {where if streaming else 'not used'}."
    if max(map(sum, used)) > IN_PROCESSOR_MEMORY or streaming > STREAMING_MEMORY:
        yield "On IPUs this run does not fit. On a CPU or GPU these limits do not apply."


def _mega(size: float) -> str:
    return f"{size / MEGABYTE:,.0f}"


def pipeline_rows(run: Planned) -> Iterator[Row]:
    yield "balance of the IPUs", f"{balance(run):.0%} (mean load over the largest)"
    for name in SCHEDULES if len(set(run.devices)) > 1 else ():
        chosen = " (chosen)" if name == run.config.ipu_config.pipeline_schedule else ""
        yield f"IPUs wait, {name}", f"{bubble(run, name):.0%} of the time{chosen}"
    moved = communication(run)
    yield (
        "moved per update",
        ", ".join(f"{name.replace('_', ' ')} {_mega(size)} MB" for name, size in moved._asdict().items())
        + " for each replica",
    )


def ipus(run: Planned) -> range:
    return range(max(run.devices) + 1)


def blocks_on(run: Planned, ipu: int) -> List[str]:
    return [block for stage, device in zip(run.stages, run.devices) if device == ipu for block in stage]


def parameters(run: Planned) -> List[int]:
    return [run.parameters(blocks_on(run, ipu)) for ipu in ipus(run)]


class IpuMemory(NamedTuple):
    """Bytes on one IPU of weights, accumulators (both float16) and moments on the chip; no activations or code."""

    weights: float
    gradients: float
    optimizer: float


def ipu_memory(run: Planned) -> List[IpuMemory]:
    return [
        IpuMemory(
            weights=HALF * count,
            gradients=HALF * count,
            optimizer=run.moments(blocks_on(run, ipu)) if run.config.optimizer_state_offchip is False else 0.0,
        )
        for ipu, count in enumerate(parameters(run))
    ]


def streaming_memory(run: Planned) -> float:
    """Return the bytes outside the chips for the IPU that needs most."""
    is_on_chip = run.config.optimizer_state_offchip is False
    return 0.0 if is_on_chip else max(run.moments(blocks_on(run, ipu)) for ipu in ipus(run))


class Communication(NamedTuple):
    """Bytes that one replica moves for an update: activations and gradients, all-reduce as a ring, optimizer state."""

    between_stages: float
    between_replicas: float
    streaming: float


def stage_flops(run: Planned) -> List[int]:
    """Return the operations of each stage's forward pass on one sample; an embedding counts as its copy."""
    masked, labels = run.masked_positions, run.config.number_of_labels
    return [
        sum(block_flops(run.architecture, block, run.config.max_seq_length, masked, labels) for block in blocks)
        for blocks in run.stages
    ]


def balance(run: Planned) -> float:
    """Return the mean load of the IPUs divided by the largest; 1 is perfect."""
    pairs = list(zip(stage_flops(run), run.devices))
    loads = [sum(work for work, device in pairs if device == ipu) for ipu in ipus(run)]
    return sum(loads) / (len(loads) * max(loads))


def bubble(run: Planned, schedule: str) -> float:
    """Return the share of time that the IPUs wait under a schedule."""
    micro_batches = min(run.config.global_batch.grad_acc_steps_per_replica, LONGEST_SIMULATION)
    jobs = make_schedule(schedule, len(run.stages))
    intervals = simulate(jobs, job_costs(run), micro_batches, list(run.devices))
    return idle_fraction(intervals, len(set(run.devices)))


def job_costs(run: Planned) -> Dict[Job, float]:
    """Return the operations of each job: backward is twice forward, plus one forward if it is recomputed."""
    last = len(run.stages) - 1
    costs: Dict[Job, float] = {}
    for stage, work in enumerate(stage_flops(run)):
        costs[FORWARD, stage] = float(work)
        costs[BACKWARD, stage] = work * (2.0 if stage != last and run.config.enable_recomputation is False else 3.0)
    return costs


def communication(run: Planned) -> Communication:
    config, batch = run.config, run.config.global_batch
    tokens = batch.micro_batch_size * config.max_seq_length
    links = sum(one != other for one, other in zip(run.devices, run.devices[1:]))
    return Communication(
        between_stages=2.0 * HALF * tokens * run.architecture.hidden_size * links * batch.grad_acc_steps_per_replica,
        between_replicas=2.0 * HALF * run.parameters(run.blocks) * (batch.replicas - 1) / batch.replicas,
        streaming=0.0 if config.optimizer_state_offchip is False else 2.0 * run.moments(run.blocks),
    )
