"""What a config asks of an IPU that other machines do not do, in words.

Nothing is left out in silence: a run on stock TensorFlow says in one line which keys of its config have no effect there
and what they would do on an IPU; the plan has them as a table.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from execution.software.cluster.membership import membership_of
from utilities.config.fields import leaves, value_at
from utilities.config.loading import DEFAULT, DERIVED
from utilities.config.schema import TrainingConfig

NARROW = ("float16", "bfloat16")


class Machine(NamedTuple):
    """What of a machine decides whether a key has an effect.

    Attributes:
        precision: number format of weights and computation.
        pipelined: whether stages lie on several devices.
        on_gpu: whether it computes on GPUs.
        processes: that share each update.
    """

    precision: str
    pipelined: bool
    on_gpu: bool = False
    processes: int = 1


class Effect(NamedTuple):
    """A key whose effect depends on the machine.

    Attributes:
        key: dotted name.
        asks: whether this value, on this machine, asks for something that is not done.
        on_ipu: what it does on an IPU.
        here: what takes its place.
    """

    key: str
    asks: Callable[[Any, Machine], bool]
    on_ipu: str
    here: str


def _given(value: Any, machine: Machine) -> bool:
    return value is not None


def _on(value: Any, machine: Machine) -> bool:
    return bool(value)


def _several_in_sequence(value: Any, machine: Machine) -> bool:
    return not machine.pipelined and len(set(value or ())) > 1


def _other_schedule(value: Any, machine: Machine) -> bool:
    return not machine.pipelined and value != "grouped"


EFFECTS: Tuple[Effect, ...] = (
    Effect(
        "ipu_config.pipeline_device_mapping",
        _several_in_sequence,
        "puts stages on IPUs of their own",
        "one device runs the stages in sequence, with the same update (execution.pipeline_devices)",
    ),
    Effect(
        "ipu_config.pipeline_schedule",
        _other_schedule,
        "orders the stages' work on micro batches",
        "stages run in sequence",
    ),
    Effect(
        "ipu_config.matmul_available_memory_proportion_per_pipeline_stage",
        _given,
        "limits the memory for temporaries of matrix products",
        "the memory is not divided",
    ),
    Effect(
        "matmul_partials_type",
        lambda value, machine: value == "half",
        "sums matrix products in float16",
        "products are summed in float32, and rounded once",
    ),
    Effect(
        "embedding_serialization_factor",
        lambda value, machine: value > 1,
        "multiplies by the word table in slices",
        "one product, with the same result",
    ),
    Effect(
        "optimizer_state_offchip",
        lambda value, machine: value and not machine.on_gpu,
        "keeps optimizer state outside the chip's memory",
        "the state is in the host's memory already, as is the model",
    ),
    Effect(
        "ipu_config.replicated_tensor_sharding",
        lambda value, machine: value and machine.processes == 1,
        "keeps a share of the optimizer state on each replica",
        "one process keeps all of it (python -m execution.launch starts several)",
    ),
    Effect(
        "use_outlining",
        _on,
        "compiles the encoder layers' code once",
        "XLA compiles the computation of a micro batch as a whole",
    ),
    Effect(
        "min_remote_tensor_size",
        _given,
        "says from which size tensors may leave the chip's memory",
        "there is no such memory",
    ),
    Effect(
        "execution.executable_cache",
        _given,
        "keeps compiled programs for later runs",
        "every run compiles anew",
    ),
    Effect(
        "enable_stochastic_rounding",
        lambda value, machine: value and machine.precision not in NARROW,
        "rounds float16 weights at random",
        "weights are float32, and so are not rounded",
    ),
    Effect(
        "optimizer_opts.loss_scaling",
        lambda value, machine: value == "auto" and machine.precision != "float16",
        "keeps small gradients within float16's range",
        "the range is wide enough, so the loss is not scaled",
    ),
)


class Without(NamedTuple):
    """A key without effect, its value, and where that came from."""

    effect: Effect
    value: Any
    origin: str


def without_effect(config: TrainingConfig, origins: Dict[str, str], machine: Machine) -> List[Without]:
    """All keys that ask this machine for what it does not do, in the order of the table.

    Args:
        origins: of every value, as in :class:`utilities.config.loading.LoadedConfig`.
    """
    found = []
    for effect in EFFECTS:
        value = value_at(config, leaves()[effect.key].path)
        if effect.asks(value, machine):
            found.append(Without(effect, value, origins.get(effect.key, DEFAULT)))
    return found


def warning_line(config: TrainingConfig, origins: Dict[str, str], machine: Machine) -> Optional[str]:
    """One line for all keys without effect that were given a value; None where there are none.

    Defaults are no one's wish, so they are left to the plan.
    """
    given = [found for found in without_effect(config, origins, machine) if found.origin not in (DEFAULT, DERIVED)]
    if not given:
        return None
    told = ", ".join(f"{found.effect.key} ({found.effect.on_ipu})" for found in given)
    return f"without effect on this machine, and what it does on an IPU: {told}; --plan says what happens instead"


def planned_machine(config: TrainingConfig) -> Machine:
    """The machine as far as the config alone tells: where it leaves the precision open, that of a CPU."""
    precision = config.execution.precision
    pipelined = (config.execution.pipeline_devices or 1) > 1
    narrow = "float32" if precision == "auto" else precision
    return Machine(narrow, pipelined, config.execution.device == "gpu", membership_of().count)


def effect_rows(config: TrainingConfig, origins: Dict[str, str]) -> Iterator[Tuple[str, ...]]:
    """Rows of the plan: key and origin of its value, what it does on an IPU, and what happens instead."""
    for effect, _, origin in without_effect(config, origins, planned_machine(config)):
        yield f"{effect.key} ({origin})", effect.on_ipu, effect.here
