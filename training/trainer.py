"""The trainer: trains a model from a resolved config and a task, and writes checkpoints, scores and a report."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from checkpoints.state import load_weights
from execution.interface import Platform
from execution.select import select_platform
from graphcore.training import warn_of_ignored_settings  # room: graphcore
from keras_extensions.backend import keras
from keras_extensions.listeners.progress import early_log, run_log
from keras_extensions.listeners.reporting import Period, closing
from keras_extensions.listeners.signals import stop_on_signals
from model.architecture import Architecture
from model.tasks import CLASSIFICATION, PRETRAINING, SENTENCE_EMBEDDING, SQUAD, TOKEN_CLASSIFICATION
from planning.estimates import planned
from reports.page import write_report
from settings.architecture import with_sizes
from settings.loading import LoadedConfig
from settings.problems import DATA
from training.chief import check_processes, on_chief, process_log, shared_position, shared_run_folder
from training.continuing import check_length, continued_position
from training.evaluation import checkpoint_to_evaluate, evaluate
from training.failures import run_failures
from training.initial_weights import (
    DataSet,
    InitialWeights,
    ResumedWeights,
    assign_word_frequencies,
    assign_word_vectors,
    cast_note,
    check_stages,
    configured_weights,
    described_data,
    embedding_of_weights,
    refuse_random_weights,
    resolved_architecture,
    trained_positions,
)
from training.loop import TrainingLoop
from training.machine import configured_processes, execution_options
from training.monitoring import StopWhen, make_listeners
from training.resume import (
    Position,
    check_same_data,
    check_same_precision,
    log_new_name,
    new_run,
    record_resume,
    run_to_resume,
)
from training.rooms import CHECKS
from training.run_context import RunContext, TrainingData, open_training_data
from training.run_folder import FolderLocks, RunFolder, config_for_files
from training.task import BuiltModel, MakeTask, Task
from utilities.commands import start_command
from utilities.environment import program_version
from utilities.errors import UserError
from utilities.history import END
from utilities.progress import waiting
from utilities.run_names import LOG, METRICS, SCORES

logger = logging.getLogger(__name__)

CONVERSION = "conversion.json"  # in the run's folder: the layers that were replaced, and what became of their weights

# The module and arguments of what comes after a training, by task; the model of another one can be exported.
EXPORT = ("checkpoints.export", "--checkpoint", "{weights}", "--output", "{run}-export")
NEXT_COMMANDS = {
    CLASSIFICATION: ("tasks.classify", "--checkpoint", "{weights}", "a text"),
    TOKEN_CLASSIFICATION: ("tasks.classify", "--checkpoint", "{weights}", "a text"),
    SQUAD: ("tasks.classify", "--checkpoint", "{weights}", "a question?", "a text with the answer"),
}


@dataclasses.dataclass(frozen=True)
class Result:
    """A run that has ended.

    Attributes:
        scores: of the final evaluation; empty without one, and in processes other than the chief.
        history: the content of metrics.jsonl: a dict with ``step`` and ``metrics`` for each logging period, and one
            with ``step`` and ``evaluation`` for each evaluation while training.
    """

    folder: Path
    scores: Dict[str, float]
    history: List[Dict[str, Any]] = dataclasses.field(repr=False)
    model: keras.Model = dataclasses.field(repr=False)


def train_run(
    loaded: LoadedConfig, make_task: MakeTask, started: float, until: Optional[Callable[[Period], bool]] = None
) -> Result:
    """Train and evaluate according to the config.

    Args:
        started: ``time.perf_counter()`` when the program started.
        until: called after each logging period; the run is saved and stops, as by a signal, if it returns True.
    """
    config = loaded.config
    processes = configured_processes(config)
    for note in loaded.notes if processes.is_chief else ():
        logger.warning(note)
    with early_log() as log, stop_on_signals(lambda: processes.is_waiting) as stop, run_failures(
        processes, stop
    ) as current, FolderLocks() as locks:
        # Machine
        version = program_version()  # starts git, before there are servers whose sockets it would inherit
        platform = select_platform(execution_options(config, processes), processes)

        # Start or resume
        resumed = on_chief(processes, lambda: run_to_resume(loaded, locks))
        current.folder = resumed.run if resumed else None
        position = shared_position(processes, lambda: resumed.position if resumed else Position())
        with processes.together():
            with waiting("reading the weights"):
                has_records = loaded.task == PRETRAINING or config.packing.is_on
                described = described_data(config.data_folder if has_records else None, config.max_seq_length)
                start, loaded, architecture = starting_weights(loaded, described, position, platform)
                config = loaded.config
                position = continued_position(config.continue_pretrained, start, position)

            # Task and data
            with waiting("reading the data"):
                task = make_task(config, architecture, start)
                data = open_training_data(config, task) if config.do_training else None
            if data is not None:
                check_same_data(position, data.identity, config.dataset_dir)
                check_length(position, data)
        check_processes(processes, config, data.identity if data else "", platform.precision)

        with shared_run_folder(processes, lambda: resumed.run if resumed else new_run(loaded, locks)) as run:
            current.folder = run
            processes.run_name = run.path.name
            run_file = run_log(run.path / LOG, config.logging, early=log)
            with run_file if processes.is_chief else process_log(processes.index):
                if resumed:
                    record_resume(resumed, config_for_files(config))
                elif processes.is_chief:
                    log_new_name(loaded, run)
                describe_run(run, loaded, task, architecture, data)
                logger.info("version %s; run folder %s; %s", version, run.path, platform.describe())
                logger.info(model_line(architecture, config.max_seq_length))
                if loaded.rows:
                    logger.info("rows: %s", loaded.rows)
                if data is not None:
                    logger.info(length_line(data, config.samples_per_update))
                warn_of_ignored_settings(loaded, platform, processes)  # room: graphcore
                listeners = make_listeners(config, run) if processes.is_chief else []
                if until is not None:
                    listeners.append(StopWhen(until, stop))
                context = RunContext(
                    config=config,
                    task=task,
                    architecture=architecture,
                    trained_positions=trained_positions(described.longest, start, architecture),
                    fits_data=loaded.origins["max_seq_length"] == DATA,
                    platform=platform,
                    run=run,
                    position=position,
                    stop=stop,
                    listeners=listeners,
                    started=started,
                    processes=processes,
                )
                result = fit_and_evaluate(context, data, start)
                if processes.is_chief:
                    log_next_command(context)
                return result


def fit_and_evaluate(context: RunContext, data: Optional[TrainingData], start: Optional[InitialWeights]) -> Result:
    """Build the model, train it, evaluate it, and write the report."""
    config, processes = context.config, context.processes
    with closing(context.listeners), final_report(context):
        with waiting("building the model"):
            built = initial_model(context, data, start)
        evaluates = processes.is_chief or context.platform.all_processes_predict
        if data is not None:
            last = TrainingLoop(context, data, built, start).run()
            for line in context.task.summary(last.metrics, data.description) if last else []:
                logger.info(line)
        else:
            checkpoint = checkpoint_to_evaluate(context)
            if checkpoint is not None and evaluates:
                logger.info("evaluating %s", checkpoint.folder)
                load_weights(checkpoint, built.blocks)
            context.platform.compile_evaluation(built.model, context.task.objective)
        scores = evaluate(context, built) if evaluates and not config.compile_only else {}
        # An interrupted run that is resumed only to be evaluated can still be trained to its end.
        completes = not config.compile_only and (data is not None or context.position.checkpoint is None)
        if completes or context.run.history.had_finished:
            context.run.history.add(END, context.run.last_step())
    processes.barrier()  # a process that ended earlier than the others would be reported as lost
    return Result(context.run.path, scores, context.run.metrics(), built.model)


def starting_weights(
    loaded: LoadedConfig, data: DataSet, position: Position, platform: Platform
) -> Tuple[Optional[InitialWeights], LoadedConfig, Architecture]:
    """Return the weights to start from (None: random ones), the config with what they decide, and the architecture."""
    config, saved = loaded.config, position.checkpoint
    start = configured_weights(config, loaded.task, data) if saved is None else ResumedWeights(saved)
    if loaded.task == SENTENCE_EMBEDDING:
        config = config.model_copy(update={"embedding": embedding_of_weights(config.embedding, start)})
    architecture = resolved_architecture(config, start, platform.activation)
    check_same_precision(position, platform.precision)
    check_stages(config.ipu_config.pipeline_stages, architecture, platform)
    for check in CHECKS:
        check(config, architecture)
    return start, dataclasses.replace(loaded, config=with_sizes(config, architecture)), architecture


def length_line(data: TrainingData, rows_per_update: int) -> str:
    """Return the samples to train on, those that are held out, and how often the training reads the former."""
    plan, held_out = data.plan, data.description.get("records_held_out")
    samples, each = data.reader.count * plan.packing_factor, rows_per_update * plan.packing_factor
    others = "" if held_out is None else f" ({held_out:,} more are held out)"
    updates = f"{plan.updates:,} updates, global batch {each:,.0f}, {plan.updates * each / samples:.2f} epochs"
    return f"training on {samples:,.0f} samples{others}: {updates}"


def model_line(architecture: Architecture, tokens: int) -> str:
    sizes = f"{architecture.num_hidden_layers} layers of {architecture.hidden_size}"
    heads, pieces = architecture.num_attention_heads, architecture.vocab_size
    return f"model: {sizes}, {heads} heads, {pieces:,} word pieces; sequences of {tokens} tokens"


def log_next_command(context: RunContext) -> None:
    config = context.config
    words = NEXT_COMMANDS.get(context.task.name, EXPORT)
    if config.do_training and not config.compile_only and not config.generated_dataset:
        run, weights = context.run.path, config.save_ckpt_path or context.run.path
        module, *arguments = [word.format(run=run, weights=weights) for word in words]
        if getattr(context.task, "text_counts", None) == (2,) and context.task.name == CLASSIFICATION:
            arguments.append("another text")
        logger.info("next: %s", start_command(module, arguments))


def describe_run(
    run: RunFolder, loaded: LoadedConfig, task: Task, architecture: Architecture, data: Optional[TrainingData]
) -> None:
    model = planned(loaded.config, task.name, architecture)
    of_rooms, _ = model.of_rooms()
    derived = {**(data.plan._asdict() if data else {}), **model.sizes(task.labels), **of_rooms}
    run.write_description(loaded, derived, data.description if data else {})


def initial_model(context: RunContext, data: Optional[TrainingData], start: Optional[InitialWeights]) -> BuiltModel:
    """Build the converted model with the weights to start from, and log the conversion."""
    built = context.task.build(context.platform, functools.partial(set_initial_weights, context, data, start))
    parameters = f"{sum(variable.shape.num_elements() for variable in built.model.trainable_variables):,} parameters"
    if built.conversion is None:
        logger.info("Hugging Face's BERT with its own layers, %s", parameters)
    else:
        logger.info("Hugging Face's BERT, converted, %s (the layers: %s)", parameters, CONVERSION)
        context.run.write(CONVERSION, [dataclasses.asdict(row) for row in built.conversion.rows])
    if start is not None:
        if not context.config.do_training:
            refuse_random_weights(start, context.config.allow_missing_weights)
        logger.info("weights from %s%s", start.origin, cast_note(start, context.platform.precision))
    return built


def set_initial_weights(
    context: RunContext, data: Optional[TrainingData], start: Optional[InitialWeights], source: keras.Model
) -> None:
    """Set the weights of a Hugging Face model before its conversion; weights that nothing sets stay random."""
    if start is not None:
        start.set_initial_weights(source, context.task.head_rows)
    if data is None or not context.processes.is_chief:  # training begins with the chief's weights in all processes
        return
    if start is not None:
        assign_word_frequencies(source, start, data.reader, context.config.seed)
    elif context.config.word_vectors:
        assign_word_vectors(source, data.reader, context.architecture.initializer_range, context.config.seed)


@contextlib.contextmanager
def final_report(context: RunContext) -> Iterator[None]:
    """Write the report when the block ends, even by an error; a failing report does not fail the run."""
    run = context.run.path
    try:
        yield
    finally:
        if context.config.report and ((run / METRICS).exists() or (run / SCORES).exists()):
            try:
                path = write_report(run)
            except (UserError, OSError) as error:
                logger.warning("no report: %s; try again: python -m reports %s", error, run)
            else:
                logger.info("report: %s", path)
                for listener in context.listeners:
                    listener.wrote("report", path)
