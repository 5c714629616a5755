"""Settings for IPUs that a machine with stock TensorFlow ignores: what they do there, and what happens instead."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Set

from settings.fields import value_at
from settings.loading import LoadedConfig
from settings.problems import DEFAULT, TYPED
from settings.schema import LOW_PRECISION, TrainingConfig
from utilities.environment import nvidia_gpus
from utilities.tables import titled


class Machine(NamedTuple):
    """The properties of a machine with stock TensorFlow that decide whether a field has an effect on it."""

    precision: str
    pipelined: bool
    on_gpu: bool = False
    processes: int = 1


class Effect(NamedTuple):
    """What a field does on an IPU, what happens on another machine, and whether that machine ignores a value."""

    on_ipu: str
    instead: str
    ignored: Callable[[Any, Machine], bool] = lambda value, machine: value is not None and value is not False


EFFECTS = {  # in the schema's order
    "optimizer_opts.loss_scaling": Effect(
        "keeps small gradients within float16's range",
        "the range is wide enough: auto does not scale, and a number has no effect",
        lambda value, machine: value not in (None, 1) and machine.precision != "float16",
    ),
    "ipu_config.pipeline_device_mapping": Effect(
        "puts stages on IPUs of their own",
        "one device runs the stages in sequence, with the same update (execution.pipeline_devices)",
        lambda value, machine: not machine.pipelined and len(set(value or ())) > 1,
    ),
    "ipu_config.matmul_available_memory_proportion_per_pipeline_stage": Effect(
        "limits the memory for temporaries of matrix products", "the memory is not divided"
    ),
    "ipu_config.replicated_tensor_sharding": Effect(
        "keeps a share of the optimizer state on each replica",
        "one process keeps all of it (python -m execution.launch starts several)",
        lambda value, machine: value and machine.processes == 1,
    ),
    "ipu_config.pipeline_schedule": Effect(
        "orders the stages' work on micro batches",
        "stages run in sequence",
        lambda value, machine: not machine.pipelined and value != "grouped",
    ),
    "execution.executable_cache": Effect(
        "keeps compiled programs for later runs",
        "each run compiles its programs",
        lambda value, machine: value not in (None, "auto"),
    ),
    "use_outlining": Effect(
        "compiles the encoder layers' code once",
        "XLA compiles the computation of a micro batch, as a whole or in parts",
    ),
    "optimizer_state_offchip": Effect(
        "keeps optimizer state outside the chip's memory",
        "the state is in the host's memory already, as is the model",
        lambda value, machine: value and not machine.on_gpu,
    ),
    "enable_stochastic_rounding": Effect(
        "uses stochastic rounding",
        "weights are float32, and so are not rounded",
        lambda value, machine: value and machine.precision not in LOW_PRECISION,
    ),
    "matmul_partials_type": Effect(
        "sums matrix products in float16",
        "products are summed in float32, and rounded once",
        lambda value, machine: value == "half",
    ),
    "embedding_serialization_factor": Effect(
        "multiplies by the word table in slices",
        "one product, with the same result",
        lambda value, machine: value > 1,
    ),
    "min_remote_tensor_size": Effect(
        "sets the size from which tensors may leave the chip's memory", "there is no such memory"
    ),
}


def ignored_fields(config: TrainingConfig, machine: Machine) -> List[str]:
    return [name for name, effect in EFFECTS.items() if effect.ignored(value_at(config, name), machine)]


def warning_line(config: TrainingConfig, origins: Dict[str, str], machine: Machine) -> Optional[str]:
    """Return one line for all fields without effect that were given for this run alone; None if there are none.

    Defaults and those of config files, which are for IPUs too, are shown only in the plan.
    """
    given = [name for name in ignored_fields(config, machine) if origins.get(name, DEFAULT) in TYPED]
    if not given:
        return None
    listed = ", ".join(f"{name} ({EFFECTS[name].on_ipu})" for name in given)
    return f"without effect on this machine (effect on an IPU): {listed}; --plan all says what happens instead"


def ignored_in_plan(config: TrainingConfig, processes: int) -> Set[str]:
    """Return the fields that a run ignores, as far as the config alone determines its machine."""
    if config.runs_on_ipus:
        return set()
    precision, device = config.execution.precision, config.execution.device
    machine = Machine(
        precision="float32" if precision == "auto" else precision,  # as on a CPU
        pipelined=not config.runs_in_sequence,
        on_gpu=device == "gpu" or (device == "auto" and bool(nvidia_gpus())),
        processes=processes,
    )
    return set(ignored_fields(config, machine))


def effects_table(loaded: LoadedConfig, processes: int) -> Iterator[str]:
    ignored = ignored_in_plan(loaded.config, processes)
    rows = [
        (f"{name} ({loaded.origins.get(name, DEFAULT)})", effect.on_ipu, effect.instead)
        for name, effect in EFFECTS.items()
        if name in ignored
    ]
    if rows:
        header = ("field (from)", "on an IPU it", "here")
        yield from titled("Without effect on stock TensorFlow (on one CPU, or as execution says)", header, rows)
