"""Command-line flags, generated from the schema: every field has one, such as ``--global-batch.replicas``."""

from __future__ import annotations

import argparse
import json
import re
from typing import Any, Dict, List, NoReturn, Sequence, Tuple

from model.tasks import CLASSIFICATION, PRETRAINING, SENTENCE_EMBEDDING, SQUAD, TASKS, TOKEN_CLASSIFICATION
from settings.fields import Leaf, OtherFlag, is_in
from settings.problems import ABBREVIATED, nearest, show
from settings.schema import leaves, sections
from utilities.commands import ShowVersion, complete, completes
from utilities.errors import UserError

TRUE_WORDS = ("true", "yes", "on", "1")
FALSE_WORDS = ("false", "no", "off", "0")
NONE_WORDS = ("none", "null")

_METAVARS = {"int": "INT", "float": "FLOAT", "str": "NAME", "path": "PATH", "stages": "STAGE"}

_EPILOG = (
    "BOOL is one of true/false, yes/no, on/off, 1/0; a BOOL flag alone means true. "
    "Lists take '0.2 0.2', '0.2,0.2' or '[0.2, 0.2]'. 'none' unsets a value that may be unset. "
    "Flags take precedence over config files, a later file over an earlier one, a file over what it extends, all over "
    "the defaults. --help-all lists all fields."
)


EVERYTHING = "all"  # of --plan: also defaults, and what has no effect

# The fields that --help shows: the most used ones, and those of the task, also whole sections. --help-all shows all.
_MOST_USED = (
    "dataset_dir", "name", "output_dir", "resume", "pretrained_ckpt_path", "max_seq_length", "num_epochs", "seed",
    "global_batch.micro_batch_size", "global_batch.grad_acc_steps_per_replica",
    "optimizer_opts.learning_rate.max_learning_rate", "evaluation.every", "evaluation.patience", "do_training",
    "execution.device", "execution.precision", "execution.threads",
    "enable_wandb",  # room: wandb
)  # fmt: skip
_OF_FINE_TUNING = ("bert_model_name", "vocab_file", "lower_case", "packing.max_sequences_per_pack")
_OF_TASKS = {
    PRETRAINING: (
        "total_num_train_samples", "validation_dir", "max_predictions_per_seq", "use_next_sentence", "packing",
        "bert_config.hidden_size", "bert_config.num_hidden_layers", "bert_config.num_attention_heads",
        "bert_config.vocab_size",
    ),
    SQUAD: ("squad", *_OF_FINE_TUNING),
    CLASSIFICATION: (
        *("glue_task", "classification_data"),
        "distillation",  # room: teacher
        *("do_test", *_OF_FINE_TUNING),
    ),
    TOKEN_CLASSIFICATION: ("token_data", "do_test", *_OF_FINE_TUNING),
    SENTENCE_EMBEDDING: ("embedding", *_OF_FINE_TUNING),
}  # fmt: skip


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors are UserErrors of one line."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; {self.prog} --help-all lists the flags")


def build_parser(task: str, shows_all: bool = True) -> argparse.ArgumentParser:
    """Return the parser of a task's command; its help shows all flags, or the task's own and the most used ones."""
    program, description = TASKS[task].program, TASKS[task].description
    usage = "%(prog)s --config FILE [OVERLAY ...] [--plan] [--FIELD VALUE ...]"
    parser = _Parser(prog=program, usage=usage, description=description, epilog=_EPILOG, allow_abbrev=False)
    run = parser.add_argument_group("this command")
    run.add_argument(
        "--config",
        nargs="+",
        action="extend",
        metavar="FILE",
        help="JSON config to run (required), and overlays to merge over it in order, such as configs/systems/cpu.json; "
        "looked for in the current folder, then in the project's",
    )
    run.add_argument(
        "--plan",
        nargs="?",
        const="set",
        choices=["set", EVERYTHING],
        metavar=EVERYTHING,
        help="print what was set and what follows from it, then exit; with the word all, every field and every table",
    )
    run.add_argument("--throughput", type=float, metavar="N", help="with --plan: samples per second, for the duration")
    run.add_argument("--help-all", action="help", help="list every flag, then exit")
    run.add_argument("--schema", action="store_true", help="print the config's JSON Schema, then exit")
    run.add_argument("--debug", action="store_true", help="show every problem, and tracebacks")
    run.add_argument("--version", action=ShowVersion, nargs=0, help="print the version, then exit")
    if shows_all:
        _add_sections(parser)
        return parser
    own = [name for name in leaves() if is_in(name, _OF_TASKS[task])]
    own_fields = parser.add_argument_group(f"fields of {task}")
    most_used = parser.add_argument_group("fields used most")
    for name, leaf in leaves().items():
        if name in own:
            _add_field(own_fields, leaf)
        elif name in _MOST_USED:
            _add_field(most_used, leaf)
        else:
            _add_field(parser, leaf, help=argparse.SUPPRESS)
    for section, info in sections().items():
        if section and info.optional:
            _add_unset(parser, section, argparse.SUPPRESS)
    return parser


def _add_sections(parser: argparse.ArgumentParser) -> None:
    """Add the flags of all fields, in a group for each section of the config."""
    groups: Dict[str, Any] = {}
    for leaf in leaves().values():
        section = ".".join(leaf.path[:-1])
        if section not in groups:
            title = section or "run"
            about = sections()[section].description if section else "Top-level keys of the config."
            groups[section] = parser.add_argument_group(title, about.replace("%", "%%"))
            if section and sections()[section].optional:
                _add_unset(groups[section], section, "leave out the whole section that a config file has")
        _add_field(groups[section], leaf)


def _add_unset(group: Any, section: str, about: str) -> None:
    none = {"type": str.lower, "choices": NONE_WORDS, "metavar": "none", "default": argparse.SUPPRESS}
    group.add_argument("--" + section.replace("_", "-"), dest=section, help=about, **none)


def _add_field(group: Any, leaf: Leaf, **changes: Any) -> None:
    other = leaf.annotation(OtherFlag)
    names = [leaf.flag] if other is None else [leaf.flag, other.flag]
    action = group.add_argument(*names, dest=leaf.name, default=argparse.SUPPRESS, **{**_arguments(leaf), **changes})
    if leaf.choices:
        action.completer = lambda **_: leaf.choices  # for argcomplete


def _arguments(leaf: Leaf) -> Dict[str, Any]:
    default = "unset" if leaf.default is None else show(leaf.default).strip('"')
    help_text = f"{leaf.description} [default: {default}]".replace("%", "%%")
    if leaf.kind.name == "choice":
        return {"metavar": "{" + ",".join(leaf.choices) + "}", "help": help_text}
    if leaf.kind.name == "bool":
        return {"nargs": "?", "const": "true", "metavar": "BOOL", "help": help_text}
    if leaf.kind.name == "stages" or leaf.kind.name.startswith("list"):
        inner = leaf.kind.name[len("list[") : -1] if leaf.kind.name.startswith("list") else "stages"
        return {"nargs": "+", "metavar": _METAVARS[inner], "help": help_text}
    return {"metavar": _METAVARS[leaf.kind.name], "help": help_text}


def parse_flags(task: str, argv: Sequence[str], own: Sequence[str] = ()) -> Tuple[argparse.Namespace, Dict[str, Any]]:
    """Return the options of the command itself, and the config values given by flag, by dotted name.

    An unknown flag may have been meant for one of the command's ``own``, which ``argv`` has no longer. ``--help`` ends
    in ``SystemExit``.
    """
    parser = build_parser(task, shows_all="--help-all" in argv or completes())
    complete(parser)
    parsed, unknown = parser.parse_known_args(list(argv))
    if unknown:
        raise UserError(_unknown_flag(unknown[0], own))
    if parsed.throughput is not None and parsed.plan is None:
        raise UserError("--throughput has no effect without --plan; add --plan, or remove --throughput")
    fields = leaves()
    without: Dict[str, Any] = {name: None for name in sections() if name in parsed}  # before the keys of these sections
    given = {name: read_value(leaf, getattr(parsed, name)) for name, leaf in fields.items() if name in parsed}
    others = {name: value for name, value in vars(parsed).items() if name not in fields and name not in without}
    return argparse.Namespace(**others), {**without, **given}


def _unknown_flag(argument: str, own: Sequence[str]) -> str:
    if not argument.startswith("-"):
        return f"{show(argument)}: not a flag, and no flag takes it; the config file is given by --config FILE"
    word = argument.split("=")[0]
    by_key = {leaf.path[-1].replace("_", "-"): leaf.flag for leaf in reversed(list(leaves().values()))}
    by_key.update({short: leaves()[name].flag for short, name in ABBREVIATED.items()})
    known = [leaf.flag for leaf in leaves().values()]
    known += ["--config", "--plan", "--throughput", "--schema", "--debug", "--version", "--help", "--help-all"]
    plain = word.lower().replace("_", "-").lstrip("-")
    key = plain.rpartition(".")[2]
    same_key = [flag for flag in known if flag.endswith(f".{key}")]  # of any section, whose name may be mistyped
    guess = nearest("--" + plain, own, 0.8) or nearest("--" + plain, same_key, 0.8) or by_key.get(key)
    guess = guess or nearest("--" + plain, known, 0.7)
    guess = guess or by_key.get(nearest(plain, list(by_key)), "")
    hint = f"did you mean {guess}?" if guess else "--help-all lists the flags"
    return f"{word}: unknown flag; {hint}"


def read_value(leaf: Leaf, given: Any) -> Any:
    """Return the value of a flag; text that cannot be parsed is returned unchanged, and validation refuses it."""
    if isinstance(given, list):
        return _read_list(leaf, given)
    if leaf.optional and given.lower() in NONE_WORDS:
        return None
    return _read_word(leaf.kind.name, given)


def _read_word(kind: str, word: str) -> Any:
    if kind == "bool":
        lower = word.lower()
        return True if lower in TRUE_WORDS else False if lower in FALSE_WORDS else word
    if kind in ("int", "float"):
        return _number(word)
    return word


def _number(word: str) -> Any:
    if re.fullmatch(r"[+-]?\d{1,30}", word):
        return int(word)
    if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", word):
        return float(word)
    return word


def _read_list(leaf: Leaf, words: List[str]) -> Any:
    text = " ".join(words).strip()
    if text.startswith("["):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    if leaf.optional and text.lower() in NONE_WORDS:
        return None
    items = [item.strip() for word in words for item in word.split(",") if item.strip()]
    if leaf.kind.name == "stages":
        return items
    inner = leaf.kind.name[len("list[") : -1]
    if inner != "str":
        items = [item for word in items for item in word.split()]
    return [_read_word(inner, item) for item in items]
