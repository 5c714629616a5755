"""The command line of ``run_from_text.py``: from a text and a time to a trained, judged and exported model."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from data_utils.command_line import positive
from data_utils.text.examples import vocabulary_from_options
from data_utils.text.sources import (
    DEFAULT_MIN_CHARACTERS,
    OPTIONS_OF_INPUTS,
    STANDARD_INPUT,
    Source,
    add_source_options,
    source_from_options,
)
from data_utils.text.vocabulary import add_case_option, check_case, check_size
from model.tasks import TASKS
from settings.flags import parse_flags
from settings.loading import check_values
from tasks import task_class
from tasks.from_text.choice import LENGTHS, choose
from tasks.from_text.folder import UPDATES, Folder
from tasks.from_text.inputs import Machine, Text, look_at_machine, look_at_text
from tasks.from_text.judgement import judge
from tasks.from_text.pace import Pace, measure
from tasks.from_text.phases import check_phases, released
from tasks.from_text.purpose import LANGUAGE, Purpose
from tasks.from_text.recipe import Recipe
from tasks.from_text.search import OF_PAIRS, SEARCH  # room: search
from tasks.from_text.steps import is_prepared, train_phase
from utilities.commands import flags_of, make_parser, run_main
from utilities.environment import usable_cores
from utilities.errors import Stopped, UserError
from utilities.files import only_command_in
from utilities.progress import waiting
from utilities.run_names import name_problem
from utilities.tables import aligned
from utilities.text_folder import model_folder

PROGRAM = "run_from_text.py"
PURPOSES = {  # by --for
    None: LANGUAGE,
    "search": SEARCH,  # room: search
}
# Fields that the command decides itself, with what to do instead of setting them.
DECIDED = {
    **dict.fromkeys(("total_num_train_samples", "num_epochs"), "--hours decides the length of training"),
    "max_seq_length": "give --lengths",
    **dict.fromkeys(("max_predictions_per_seq", "dataset_dir", "validation_dir"), "the command makes the data"),
    **dict.fromkeys(("pretrained_ckpt_path", "bert_model_name"), "give --start-from"),
    **OF_PAIRS,  # room: search
    **dict.fromkeys(("vocab_file", "lower_case"), "the weights of --start-from decide"),
    **dict.fromkeys(("resume", "do_training", "compile_only", "generated_dataset"), "leave it out"),
    **dict.fromkeys(("save_ckpt_path", "packing", "use_next_sentence"), "leave it out"),
}
# Advice of the steps, and what this command has instead.
OWN_WORDS = (
    (r"--max-seq-length", "--lengths"),
    (r"max_seq_length", "lengths"),
    (r"--vocab-size (\d+)", r"--bert-config.vocab-size \1"),
    (r"more than --max-bad-articles (\d+) allows", r"more than \1"),
    (r"--pretrained-ckpt-path", "--start-from"),
    (r"pretrained_ckpt_path", "start_from"),
    (r"resume [^;:]*(: |with )--name \S+ --resume", "repeat the command"),
    (r"give a larger --vocab-size, or a --vocab-file of its language", "start from weights of its language"),
    (
        r"give a larger --vocab-size|give a --vocab-file of its language, or none, to train one",
        "start from weights of its language",
    ),
    (r" \(config\)", ""),  # the command's own choice
    (
        r"change --output|name another --output|choose another folder, or replace it with --overwrite",
        "give another --name",
    ),
)
# Fields of a recipe that decide the rows.
OF_ROWS = ("vocabulary", "lengths", "masked", "documents_share", "held_out", "pass_updates")
INPUTS = ("dump", "text", "jsonl", "wikiextractor", "wikitext", "parquet", "hub_dataset")


def main(arguments: Optional[Sequence[str]], started: float) -> int:
    """Run the command of a process that ``started`` by ``time.monotonic()``; return the exit status."""
    _, others, kept = split(sys.argv[1:] if arguments is None else arguments)
    return run_main(_parser(), lambda options: _run(options, others, started), kept)


def split(words: Sequence[str]) -> Tuple[argparse.Namespace, List[str], List[str]]:
    """Return this command's options, the flags of ``run_pretraining.py``, and the words without these."""
    options, others = _parser().parse_known_args(words)
    return options, others, _without(words, others)


def _without(words: Sequence[str], others: Sequence[str]) -> List[str]:
    """Return the words of a command line that are not among ``others``, which are in the same order."""
    rest, kept = list(others), []
    for word in words:
        if rest and word == rest[0]:
            rest.pop(0)
        else:
            kept.append(word)
    return kept


def _parser() -> argparse.ArgumentParser:
    parser = make_parser("run_from_text", "Makes a BERT from a text in a given time, and judges it.")
    parser.prog = f"python {PROGRAM}"
    parser.allow_abbrev = False
    parser.epilog = "Any flag of run_pretraining.py overrides a choice, such as --bert-config.hidden-size 256."
    parser.add_argument(
        "--hours", type=float, required=True, metavar="X", help="from start to end, preparation included"
    )
    parser.add_argument("--name", help="name of the folder (default: that of the text)")
    parser.add_argument("--output-dir", type=Path, default=Path("runs"), metavar="DIR", help="where the folder is made")
    what = "; ".join(f"{name}: {purpose.what}" for name, purpose in PURPOSES.items() if name)
    parser.add_argument("--for", dest="purpose", choices=[name for name in PURPOSES if name], help=what)
    parser.add_argument("--start-from", metavar="FOLDER", help="released weights to continue, a Hugging Face folder")
    parser.add_argument(
        "--lengths", type=positive, nargs="+", metavar="N",
        help="tokens of a row, in one or two phases (default: 32, then 128; with --start-from, 128)",
    )  # fmt: skip
    parser.add_argument("--plan", action="store_true", help="print what would be done, then exit")
    add_source_options(parser)
    add_case_option(parser)
    parser.add_argument("--workers", type=positive, default=usable_cores(), metavar="N", help="of the preparation")
    return parser


def _run(options: argparse.Namespace, others: Sequence[str], started: float) -> Optional[int]:
    trainer = logging.getLogger("training.trainer")
    trainer.addFilter(_is_no_next_command)
    try:
        with contextlib.nullcontext() if options.plan else only_command_in(options.output_dir / _name(options)):
            _make(options, others, started)
    except UserError as error:
        raise UserError(in_own_words(str(error))) from error
    except Stopped as stop:
        print(f"{stop}; the same command goes on there", file=sys.stderr)
        return stop.status
    finally:
        trainer.removeFilter(_is_no_next_command)
    return None


def _is_no_next_command(record: logging.LogRecord) -> bool:
    """Return whether a line may be shown: what follows a training is this command's next step."""
    return not record.getMessage().startswith("next: ")


def in_own_words(message: str) -> str:
    """Return a step's message with what this command accepts, such as "--lengths", instead of "--max-seq-length"."""
    for theirs, ours in OWN_WORDS:
        message = re.sub(theirs, ours, message)
    return message


def _make(options: argparse.Namespace, others: Sequence[str], started: float) -> None:
    decision = decide(options, others, started)
    folder = decision.folder
    notes = [*decision.notes, f"folder:  {folder.path}"]
    print("\n".join([*plan_lines(decision.recipe, decision.inputs), *notes]), flush=True)
    if options.plan:
        return
    folder.lap("plan")
    if decision.machine.measured is None:
        decision = decision.measured(options)
    recipe, start = decision.recipe, decision.machine.measured.start  # type: ignore[union-attr]
    purpose = PURPOSES[options.purpose]
    trainings = purpose.phases(folder, recipe, decision.given, recipe.vocabulary)
    data = purpose.prepare(folder, recipe, source_words(options), trainings)
    recipe = recipe.with_training_tokens(data.tokens)
    pace = Pace(folder, recipe, purpose.phases(folder, recipe, decision.given, data.pieces), start, options.hours)
    recipe = recipe.with_updates(pace.planned)
    numbers = " + ".join(map(str, pace.updates.values()))
    print("\n".join([f"\n{numbers} updates", *recipe.expectation, *recipe.warning]), flush=True)
    runs = [train_phase(folder, phase, pace) for phase in purpose.phases(folder, recipe, decision.given, data.pieces)]
    purpose.export(folder, recipe, runs[-1])
    recipe = recipe.with_updates(sum(pace.updates.values()))
    judge(folder, recipe, pace, options.hours, decision.inputs, purpose.read_result, purpose.commands)


class Decision(NamedTuple):
    """What is decided before anything is done."""

    folder: Folder
    identity: Dict[str, Any]
    recipe: Recipe
    given: Dict[str, Any]
    text: Text
    machine: Machine
    inputs: Dict[str, str]
    notes: Tuple[str, ...]

    def measured(self, options: argparse.Namespace) -> Decision:
        """Return this decision after some updates were timed, which shows what this machine can do; write it down."""
        print("\n=== timing some updates", flush=True)
        with self.folder.step("timing"):
            with waiting("loading TensorFlow"):
                from training import trainer  # noqa: F401 (so that the timing is without it)

                purpose = PURPOSES[options.purpose]
                task_class(purpose.task)
            phase = purpose.phases(self.folder, self.recipe, self.given, self.recipe.vocabulary)[-1]
            machine = measure(self.machine, self.recipe, phase, self.folder)
        recipe, lines = planned_again(self.recipe, _recipe(options, self.text, machine, self.given))
        print("\n".join(lines), flush=True)
        self.folder.begin(self.identity, recipe, self.inputs, machine.measured)
        return self._replace(recipe=recipe, machine=machine)


def planned_again(before: Recipe, now: Recipe) -> Tuple[Recipe, List[str]]:
    """Return a recipe that was chosen again, whose changed choices say what they were before, and lines about these."""
    values = {choice.name: choice.value for choice in before.choices}
    choices, rows = [], []
    for choice in now.choices:
        if values.get(choice.name, choice.value) != choice.value:
            reason = f"instead of {values[choice.name]}, after the timing; {choice.reason}"
            choice = replace(choice, reason=reason)
            rows.append((choice.name, str(choice.value), choice.reason))
        choices.append(choice)
    title = f"planned again: {now.updates:,} updates instead of {before.updates:,}"
    return replace(now, choices=tuple(choices)), ["", title, *aligned(rows), *now.warning]


def decide(options: argparse.Namespace, others: Sequence[str], started: float) -> Decision:
    """Look at text and machine, choose a recipe, and write the plan, or return the one that is there."""
    purpose = PURPOSES[options.purpose]
    given = _given(others, purpose)
    _check(options)
    folder = Folder(options.output_dir / _name(options), started)
    # The command's own output is not read as text, for example the vocabularies beside its checkpoints.
    source = source_from_options(_with(options, output=folder.path), folder.path / "data")
    strips_marks = not (options.cased or options.keep_accents or options.start_from)
    text, machine = look_at_text(source, options.min_characters, strips_marks), look_at_machine()
    inputs = {"text": text.described(), "machine": machine.described()}
    identity = _identity(options, source, given)
    planned = folder.planned(identity, inputs)
    if planned is not None:
        machine, recipe = machine._replace(measured=planned.measured), planned.recipe
    if planned is None or (planned.has_more_hours and not (folder.path / UPDATES).exists()):
        recipe = _recipe(options, text, machine, given)
        if planned is not None and is_prepared(folder, planned.recipe):
            recipe = replace(recipe, **{name: getattr(planned.recipe, name) for name in OF_ROWS})
        _check_vocabulary(options, recipe)
        check_phases(purpose.phases(folder, recipe, given, recipe.vocabulary), recipe.start_from, given)
    if not options.plan and (planned is None or planned.has_more_hours):
        folder.begin(identity, recipe, inputs, machine.measured)
    notes = (*text.notes, *filter(None, [machine.note]))
    return Decision(folder, identity, recipe, given, text, machine, inputs, notes)


def _with(options: argparse.Namespace, **changes: Any) -> argparse.Namespace:
    return argparse.Namespace(**{**vars(options), **changes})


def _check_vocabulary(options: argparse.Namespace, recipe: Recipe) -> None:
    """Refuse what the preparation would refuse of the vocabulary, before any work."""
    if recipe.start_from is None:
        check_size(recipe.vocabulary)
    else:
        vocabulary_from_options(_with(options, vocab_file=Path(recipe.start_from), extra_tokens=None))


def _recipe(options: argparse.Namespace, text: Text, machine: Machine, given: Mapping[str, Any]) -> Recipe:
    has_head = options.start_from is None or not released(options.start_from).missing_of_masked_lm()
    recipe = choose(text, machine, options.hours, options.lengths, options.start_from, given, has_head)
    return PURPOSES[options.purpose].adapt(recipe, text)


def _given(others: Sequence[str], purpose: Purpose) -> Dict[str, Any]:
    """Return the values that flags of the trainings' command give, by dotted name."""
    own, given = parse_flags(purpose.task, others, flags_of(_parser()))
    if own.config or own.throughput or own.schema:
        program = TASKS[purpose.task].program
        raise UserError(f"--config, --throughput and --schema are options of {program}; leave them out")
    for name in given:
        fix = DECIDED.get(name) or DECIDED.get(name.partition(".")[0])
        if fix is not None:
            raise UserError(f"--{name.replace('_', '-')}: is decided by this command; {fix}")
    if "bert_config" in given:
        raise UserError("--bert-config none: this command chooses sizes; continue those of weights with --start-from")
    check_values(given)
    return given


def _check(options: argparse.Namespace) -> None:
    check_case(options)
    if not 0 < options.hours < 10_000:
        raise UserError(f"--hours {options.hours:g}: give a number of hours above 0, such as 0.5")
    if options.lengths is None:
        options.lengths = list(LENGTHS[1:] if options.start_from else LENGTHS)
    lengths = options.lengths
    if len(lengths) > 2 or sorted(set(lengths)) != lengths or not 16 <= lengths[0] <= lengths[-1] <= 512:
        raise UserError("--lengths: give one or two numbers from 16 to 512, the smaller one first")
    if any(STANDARD_INPUT in paths for paths in (options.text or (), options.jsonl or ())):
        raise UserError("standard input is read once, and this command repeats; write it to a file first")
    if options.start_from is not None and not Path(options.start_from).is_dir():
        raise UserError(f"--start-from {options.start_from}: is no folder; name a Hugging Face folder of a BERT")
    if options.start_from is not None:
        options.start_from = str(model_folder(Path(options.start_from), "--start-from"))
    PURPOSES[options.purpose].check(lengths, options.start_from)


def _name(options: argparse.Namespace) -> str:
    """Return the name of the folder, by default that of the input: of several files, of the folder that they are in."""
    if options.name:
        problem = name_problem(options.name)
        if problem is not None:
            raise UserError(f"--name {options.name}: {'; '.join(problem)}")
        return str(options.name)
    given = next(value for value in (getattr(options, each) for each in INPUTS) if value)
    if isinstance(given, list) and len(given) > 1:
        return Path(os.path.commonpath([path.resolve().parent for path in given])).name or "from_text"
    return Path(str(given[0] if isinstance(given, list) else given)).stem or "from_text"


def _identity(options: argparse.Namespace, source: Source, given: Dict[str, Any]) -> Dict[str, Any]:
    """Return what must be the same when the command is repeated."""
    names = ("hours", "purpose", "lengths", "start_from", "cased", "keep_accents", "min_characters")
    return {"text": source.identity(), **{name: getattr(options, name) for name in names}, "flags": given}


def source_words(options: argparse.Namespace) -> List[str]:
    """Return the options of the text, for the preparation."""
    words: List[str] = []
    defaults = {name: value for settings in OPTIONS_OF_INPUTS.values() for name, value in settings.items()}
    defaults["min_characters"] = DEFAULT_MIN_CHARACTERS
    for name in (*INPUTS, *defaults, "cased", "keep_accents", "workers"):
        value = getattr(options, name)
        if value == defaults.get(name):
            continue
        if value is True:
            words.append(f"--{name.replace('_', '-')}")
        elif isinstance(value, list):
            words += [f"--{name.replace('_', '-')}", *map(str, value)]
        elif value is not None and value is not False:  # 0 is a number
            words += [f"--{name.replace('_', '-')}", str(value)]
    return words


def plan_lines(recipe: Recipe, inputs: Dict[str, str]) -> List[str]:
    """Return what was found and chosen, with reasons, and what to expect."""
    rows: List[Tuple[str, str, str]] = [(choice.name, str(choice.value), choice.reason) for choice in recipe.choices]
    lines = [f"text:    {inputs['text']}", f"machine: {inputs['machine']}", "", *aligned(rows)]
    return [*lines, "", *recipe.expectation, *recipe.warning, *recipe.advice]
