"""The plan of a run: the resolved config with each value's origin, derived figures, warnings, and the duration."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Iterator, List, Optional, Sequence, Set, Tuple

from checkpoints.pretrained.naming import check_exists
from execution.software.cluster.membership import shares  # room: cluster
from graphcore.effects import ignored_in_plan  # room: graphcore
from graphcore.plan import ipu_tables, ipus_row, parameters_by_ipu  # room: graphcore
from model.architecture import BLOCK_NAMES, EMB, HEADS, hidden_matrix_parameters
from model.tasks import SQUAD
from planning.estimates import Planned, host_memory, planned_if_known
from settings.architecture import options_come_from_checkpoint
from settings.derived import betas, max_learning_rate, packing_factor, training_samples, training_steps, warmup_steps
from settings.fields import value_at
from settings.loading import LoadedConfig
from settings.metadata import is_begun, manifest_count
from settings.problems import DEFAULT, with_origin
from settings.schema import leaves
from utilities.environment import fast_bfloat16, memory_bytes, nvidia_gpus, usable_cores
from utilities.errors import LESS_MEMORY, UserError
from utilities.secrets import mask_value
from utilities.tables import counted, titled

UNKNOWN = "unknown until the data set is read"

Row = Tuple[str, ...]


def plan_lines(loaded: LoadedConfig, processes: int = 1, everything: bool = True) -> Iterator[str]:
    """Yield the plan, line by line. Of the data, only the manifest is read, or what its rows were fitted to.

    Args:
        processes: number of processes that share each update.
        everything: whether to show all fields and tables, not only what was set and what follows from it on this
            machine.
    """
    config, task = loaded.config, loaded.task
    yield f"Plan of {config.name} ({task})"
    fields = list(leaves()) if everything else _set_fields(loaded, processes)
    yield from titled("Config", ("field", "value", "from"), _config_rows(loaded, fields))
    run = planned_if_known(config, task)
    rows = list(_run_rows(loaded, run, processes, everything))
    rows[1:1] = [("rows", loaded.rows)] if loaded.rows else []
    yield from titled("Run", (), rows)
    if run is None:
        assert config.weights is not None, "the sizes are unknown only if weights determine them"
        yield ""
        yield f"Parameters are unknown until {config.weights} is loaded."
    elif everything or config.runs_on_ipus:
        yield from _parameter_tables(run)
    if not everything:
        yield ""
        yield f"{len(leaves()) - len(fields)} more fields have their defaults, or no effect here; --plan all shows them"
    yield from ipu_tables(loaded, run, processes, everything)  # room: graphcore


def plan_warnings(loaded: LoadedConfig) -> List[str]:
    """Return what the user may want to mend before the run."""
    return [f"warning: {note}" for note in [*loaded.notes, *_missing_weights(loaded), *_missing_data(loaded)]]


def host_memory_lines(loaded: LoadedConfig) -> Iterator[str]:
    """Yield a warning if the memory of this machine is too small for the run on its CPU."""
    config, run, available = loaded.config, planned_if_known(loaded.config, loaded.task), memory_bytes()
    if run is None or available is None or config.runs_on_ipus or config.execution.device == "gpu":
        return
    needed = host_memory(run)
    if needed > available:
        yield (
            f"warning: on a CPU this run needs at least {needed / 2**30:,.1f} GiB of memory, and this machine has "
            f"{available / 2**30:,.1f} GiB; {LESS_MEMORY}"
        )


def duration_lines(loaded: LoadedConfig, throughput: float) -> Iterator[str]:
    """Yield the duration of a run, line by line."""
    config = loaded.config
    records, factor = _records(loaded)
    steps, duration = training_steps(config, records, factor), UNKNOWN
    if steps is not None and factor is not None:
        hours = steps * config.samples_per_update * factor / throughput / 3600
        duration = f"{hours:,.1f} hours for {steps:,} updates"
    yield from titled("Duration", (), [("throughput", f"{throughput:,.4g} samples/s"), ("duration", duration)])


def _set_fields(loaded: LoadedConfig, processes: int) -> List[str]:
    """Return the names of the fields that were given a value, or derived one, and have an effect on this machine."""
    config = loaded.config
    ignored: Set[str] = set()
    ignored |= ignored_in_plan(config, processes)  # room: graphcore
    if config.runs_in_sequence:
        ignored |= {name for name in leaves() if name.startswith("ipu_config.")}
    return [name for name in leaves() if loaded.origins[name] != DEFAULT and name not in ignored]


def _missing_weights(loaded: LoadedConfig) -> Iterator[str]:
    """Yield a note if there are no weights at their path; a run that is resumed does not read them again."""
    config = loaded.config
    if config.weights is not None and not is_begun(config.output_dir, config.name):
        try:
            check_exists(config.weights, config.weights_key)
        except UserError as error:
            yield str(error)


def _missing_data(loaded: LoadedConfig) -> Iterator[str]:
    """Yield a note for each missing folder or file of the data set that the run would need."""
    config = loaded.config
    section, own = config.user_files(loaded.task)
    if (config.dataset_dir is None and own is None) or config.generated_dataset:
        return
    folder = Path(config.dataset_dir or "")
    needed = {"dataset_dir": folder}
    for key in ("train_file", "validation_file", "test_file") if own is not None and folder.is_dir() else ():
        file = getattr(own, key, None)
        needed.update({f"{section}.{key}": folder / file} if file is not None else {})
    if loaded.task == SQUAD and folder.is_dir() and config.do_training:
        needed["squad.train_file"] = folder / config.squad.train_file
    if loaded.task == SQUAD and folder.is_dir() and config.do_validation:
        needed["squad.dev_file"] = folder / config.squad.dev_file
    for name, path in needed.items():
        if not os.path.exists(path):  # unlike Path.exists, this raises no error for a name that is too long
            field = with_origin(name, value_at(config, name), loaded.origins)
            yield f"{field}: {path} does not exist; correct it, or give {leaves()[name].flag} PATH"


def _config_rows(loaded: LoadedConfig, names: Sequence[str]) -> Iterator[Row]:
    for name in names:
        value = value_at(loaded.config, name)
        yield name, _text(mask_value(value, name)), loaded.origins[name]


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        if value and isinstance(value[0], list):
            return " | ".join(counted(stage) for stage in value)
        return " ".join(str(item) for item in value)
    return str(value).replace("\n", " ")


def _records(loaded: LoadedConfig) -> Tuple[Optional[int], Optional[float]]:
    """Return the number of rows to train on and of samples in one, on average; None: the data must be read for it."""
    if loaded.found is not None:
        return loaded.found
    return manifest_count(loaded.config.data_folder, "totals", "records"), packing_factor(loaded.config)


def _run_rows(loaded: LoadedConfig, run: Optional[Planned], processes: int, everything: bool) -> Iterator[Row]:
    config, (records, factor) = loaded.config, _records(loaded)
    batch, rate = config.global_batch, config.optimizer_opts.learning_rate
    row = "packs" if config.packing.is_on else "samples"
    yield (
        "global batch",
        f"{config.samples_per_update:,} {row} = {batch.micro_batch_size} micro batch × {batch.replicas} replicas"
        f" × {batch.grad_acc_steps_per_replica} accumulation steps",
    )
    if not config.runs_on_ipus:
        yield "device", _device(config.execution.device)
    yield "processes", shares(batch.micro_batches, processes)  # room: cluster
    samples = training_samples(config.total_num_train_samples, config.num_epochs, records, factor)
    steps = training_steps(config, records, factor)
    yield "records in the data set", f"{records:,}" if records is not None else UNKNOWN
    yield "samples to train on", f"{samples:,}" if samples is not None else UNKNOWN
    if config.packing.is_on:
        yield "samples in a pack", f"{factor:.4g} on average" if factor is not None else UNKNOWN
        known = factor is not None or not config.packing.adjust_betas
        decays = betas(config.optimizer_opts, config.packing, factor or 1)
        yield "betas", "{:.4g} and {:.4g}".format(*decays) if known else UNKNOWN
    if records and samples is not None and factor is not None:
        yield "epochs", f"{samples / (records * factor):,.2f}"
    yield "steps", f"{steps:,} weight updates" if steps is not None else UNKNOWN
    yield "warm-up steps", f"{warmup_steps(rate, steps):,}" if steps is not None else UNKNOWN
    yield "peak learning rate", f"{max_learning_rate(rate, config.samples_per_update):g}"
    if steps is not None:
        tokens = steps * config.samples_per_update * config.max_seq_length
        yield "tokens to train on", f"{tokens:,} at most ({row} of {config.max_seq_length}, padding included)"
    yield from ipus_row(config, everything)  # room: graphcore
    if run is None:
        return
    flops = run.flops_per_row
    yield f"model FLOPs per {row[:-1]}", f"{flops / 1e9:,.4g} GFLOP, forward and backward"
    yield from run.of_rooms()[1]
    if steps is not None:
        yield "model FLOPs of the run", f"{flops * steps * config.samples_per_update:.3g}"
    yield "parameters", f"{run.parameters(run.blocks):,}"


def _device(device: str) -> str:
    """Name the device of a run on stock TensorFlow, as far as one can tell without loading it."""
    gpus = nvidia_gpus() if device != "cpu" else ()
    if not gpus:
        fast = fast_bfloat16()
        return f"CPU, {usable_cores()} cores{f', fast bfloat16 ({fast})' if fast else ''}"
    memory, ability = f"{gpus[0].memory / 1024:.0f} GiB", f"compute capability {gpus[0].compute_capability}"
    return f"{len(gpus)} × {gpus[0].name}, {memory}, {ability}; if TensorFlow was installed for GPUs, otherwise the CPU"


def _parameter_tables(run: Planned) -> Iterator[str]:
    config, architecture, blocks = run.config, run.architecture, run.blocks
    each = {block: run.parameters([block]) for block in set(blocks)}
    total = run.parameters(blocks)
    rows = [
        (block, str(blocks.count(block)), f"{each[block]:,}", f"{each[block] * blocks.count(block):,}")
        for block in BLOCK_NAMES
        if block in each
    ]
    header = ("block", "count", "each", "together")
    yield from titled("Parameters by block", header, [*rows, ("total", "", "", f"{total:,}")], "<>>>")
    yield from parameters_by_ipu(run)  # room: graphcore
    if config.optimizer_opts.name == "Muon":
        matrices = sum(hidden_matrix_parameters(architecture, block) for block in blocks)
        yield f"Muon updates {matrices:,} of the {total:,} parameters, with one moment; AdamW the others, with two."
    if EMB in each and HEADS in each:
        yield "The masked-LM head uses the word embedding's table, which is counted in emb."
    if options_come_from_checkpoint(config):
        yield "Unset use_… options are assumed as from scratch; the checkpoint determines them when it is loaded."
