"""The one trainer: from a resolved config and a task to a trained model, its checkpoints, scores and report."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from typing import Dict, Iterator, List, Optional

from execution.interface import Platform
from execution.options import ExecutionOptions
from execution.select import select_platform
from execution.software.cluster.processes import ALONE, Processes
from keras_extensions.callbacks.progress import run_log
from keras_extensions.callbacks.reporting import closing
from keras_extensions.callbacks.signals import stop_on_signals
from training.alike import check_alike
from training.architecture import resolved_architecture
from training.failures import failures_told
from training.fitting import fit, open_training_data
from training.listeners import listeners_of, reference_of
from training.position import Position
from training.prediction import predictor
from training.resume import (
    SavedState,
    check_same_data,
    check_same_precision,
    go_on,
    new_run,
    resumed_architecture,
    run_to_resume,
)
from training.session import Session, TrainingData
from training.sparsity import sparse_lines, sparse_xla
from training.start import Start, refuse_random_weights, start_of
from training.task import BuiltModel, MakeTask
from training.together import (
    agreed_position,
    by_chief,
    ended_together,
    processes_of,
    replica_log,
    run_folder,
)
from utilities.config.fields import Machine
from utilities.config.figures import sparsity_figures
from utilities.config.loading import LoadedConfig
from utilities.config.plan import warning_line
from utilities.config.schema import TrainingConfig
from utilities.errors import UserError
from utilities.history import END
from utilities.report.page import write_report

logger = logging.getLogger(__name__)

EVALUATION_BATCH_SIZE = 32


def train(
    loaded: LoadedConfig, make_task: MakeTask, started: float, processes: Optional[Processes] = None
) -> Dict[str, float]:
    """Train and evaluate as the config says.

    Args:
        loaded: the config and the origin of its values.
        make_task: what is trained.
        started: ``time.perf_counter()`` when the program started.
        processes: that train together; None: those that the environment names.

    Returns:
        The scores of the evaluation; empty where there was none, and to all processes but the chief.

    Raises:
        UserError: data, checkpoint or folder is not what the config says.
    """
    config = loaded.config
    with contextlib.ExitStack() as held:
        stop = held.enter_context(stop_on_signals())
        failures = held.enter_context(failures_told())
        together = processes_of(config) if processes is None else processes
        held.enter_context(ended_together(together, stop, lambda: failures.run.path.name if failures.run else None))
        reference = reference_of(config)
        platform = platform_of(config, together)
        resumed = by_chief(together, lambda: run_to_resume(loaded, held))
        failures.run = resumed.run if resumed else None
        position = agreed_position(together, lambda: resumed.position if resumed else None) or Position()
        if position.checkpoint is not None:
            saved = SavedState(position.checkpoint, read=together.is_chief)
            start, architecture = saved, resumed_architecture(config, saved)
        else:
            start = start_of(config)
            architecture = resolved_architecture(config, start)
        check_same_precision(position, platform.precision)
        task = make_task(config, architecture, start)
        data = open_training_data(config, task) if config.do_training else None
        if data is not None:
            check_same_data(position, data.identity, config)
        check_alike(together, config, data.identity if data else "", platform.precision)
        run = run_folder(together, lambda: resumed.run if resumed else new_run(loaded, held), held)
        failures.run = run
        together.goes_on_as(run.path.name)
        log = run_log(run.path / "train.log", config.logging) if together.is_chief else replica_log(together.index)
        held.enter_context(log)
        if resumed:
            go_on(resumed, config)
        derived = {**(data.plan._asdict() if data else {}), **sparsity_figures(config, task.name, architecture)}
        run.describe(loaded, derived, data.facts if data else {})
        logger.info("run folder %s; %s", run.path, platform.describe())
        if together.is_chief:
            tell_what_has_no_effect(loaded, platform, together)
        listeners = listeners_of(config, run, reference) if together.is_chief else []
        session = Session(config, task, architecture, platform, run, position, stop, listeners, started, together)
        with closing(listeners), reported(session):
            built = build(session, start)
            if data is not None:
                fit_and_tell(session, data, built)
            scores = {} if config.compile_only or not together.is_chief else evaluate(session, built)
        if not config.compile_only:
            run.history.add(END, data.plan.updates if data else position.step)
        together.meet()  # so that nobody takes the first one to end for lost
        return scores


def platform_of(config: TrainingConfig, processes: Processes = ALONE) -> Platform:
    """The machine that the config asks for, with all processes joined."""
    return select_platform(options_of(config), processes)


def tell_what_has_no_effect(loaded: LoadedConfig, platform: Platform, processes: Processes) -> None:
    """One warning for all that the config asks of an IPU and this machine does not do."""
    if platform.name == "software":
        line = warning_line(
            loaded.config,
            loaded.origins,
            Machine(platform.precision, platform.pipelined, platform.on_gpu, processes.count),
        )
        if line is not None:
            logger.warning(line)


def options_of(config: TrainingConfig) -> ExecutionOptions:
    """What the config asks of the machine."""
    execution, ipu = config.execution, config.ipu_config
    # Hugging Face's own layers are float32.
    precision = "float32" if execution.precision == "auto" and not config.replace_layers else execution.precision
    return ExecutionOptions(
        platform=execution.platform,
        device=execution.device,
        xla=execution.xla if config.sparsity.ratio == 0 else sparse_xla(config),
        threads=execution.threads,
        seed=config.seed,
        precision=precision,
        recompute=config.enable_recomputation,
        device_mapping=tuple(ipu.pipeline_device_mapping or ()),
        pipeline_devices=execution.pipeline_devices,
        pipeline_schedule=ipu.pipeline_schedule,
        replicas=config.global_batch.replicas,
        matmul_proportions=tuple(ipu.matmul_available_memory_proportion_per_pipeline_stage or ()),
        matmul_partials=config.matmul_partials_type,
        optimizer_state_offchip=config.optimizer_state_offchip,
        replicated_tensor_sharding=ipu.replicated_tensor_sharding,
        stochastic_rounding=config.enable_stochastic_rounding,
        outlining=config.use_outlining,
        fp_exceptions=config.fp_exceptions,
        min_remote_tensor_size=config.min_remote_tensor_size,
        compile_only=config.compile_only,
        executable_cache=execution.executable_cache,
    )


def build(session: Session, start: Optional[Start]) -> BuiltModel:
    """The converted model, with the weights to start from."""
    built = session.task.build(session.platform, start.fill_source if start else lambda source: None)
    parameters = f"{sum(variable.shape.num_elements() for variable in built.model.trainable_variables):,} parameters"
    if built.conversion is None:
        logger.info("Hugging Face's BERT with its own layers, %s", parameters)
    else:
        logger.info("Hugging Face's BERT, converted, %s:", parameters)
        for line in built.conversion.table().splitlines():
            logger.info("  %s", line)
        for line in sparse_lines(session.config, session.platform, built.blocks):
            logger.info(line)
        session.run.write("conversion.json", [dataclasses.asdict(row) for row in built.conversion.rows])
    if start is not None:
        if not session.config.do_training:
            refuse_random_weights(start, session.config.allow_missing_weights)
        start.load_blocks(built.blocks)
        logger.info("weights from %s%s", start.origin, cast_note(start, session.platform.precision))
    return built


def cast_note(start: Start, precision: str) -> str:
    """What becomes of weights in another number format, for the log."""
    settings = getattr(start, "settings", {})
    saved = str(settings.get("precision") or settings.get("torch_dtype") or "float32")
    return "" if saved == precision else f", saved in {saved} and cast to {precision}"


def fit_and_tell(session: Session, data: TrainingData, built: BuiltModel) -> None:
    """Train, and say what came out."""
    last = fit(session, data, built)
    lines: List[str] = session.task.summary(last.metrics, data.facts) if last else []
    for line in lines:
        logger.info(line)


def evaluate(session: Session, built: BuiltModel) -> Dict[str, float]:
    """Validation and test, where the task has any; the scores go to ``scores.json``."""
    config = session.config
    batch_size = config.evaluation_batch_size or max(EVALUATION_BATCH_SIZE, config.global_batch.micro_batch_size)
    scores = session.task.evaluate(predictor(built.model, batch_size, session.platform), session.run.path)
    if scores:
        session.run.write("scores.json", scores)
        for listener in session.listeners:
            listener.scored(scores)
        for name, score in scores.items():
            logger.info("%s: %.4f", name, score)
    return scores


@contextlib.contextmanager
def reported(session: Session) -> Iterator[None]:
    """Writes the report when the run ends, also where an error ends it; a page must not make a run a failure."""
    try:
        yield
    finally:
        begun = (session.run.path / "metrics.jsonl").exists() or (session.run.path / "scores.json").exists()
        if session.config.report and begun:
            report(session)


def report(session: Session) -> None:
    """Write the report and say where it is."""
    try:
        path = write_report(session.run.path)
    except (UserError, OSError) as error:
        logger.warning("no report: %s; try again: python -m utilities.report %s", error, session.run.path)
        return
    logger.info("report: %s", path)
    for listener in session.listeners:
        listener.wrote("report", path)
