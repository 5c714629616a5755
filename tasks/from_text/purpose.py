"""What the model is for: the steps in which one purpose differs from another."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from model.tasks import PRETRAINING
from tasks.from_text.folder import Folder
from tasks.from_text.inputs import Text
from tasks.from_text.judgement import commands, read_result
from tasks.from_text.pace import Pace
from tasks.from_text.phases import Phase, phases
from tasks.from_text.recipe import Recipe
from tasks.from_text.steps import Prepared, export_model, prepare


class Purpose(NamedTuple):
    """The steps of a purpose; their arguments are those of the functions of ``LANGUAGE``.

    Attributes:
        what: What is made, for ``--help``.
        check: Refuses lengths, and weights to start from or none, that it cannot follow.
        adapt: From the recipe that was chosen for a text to that of this purpose.
        commands: What can be done with the folder next, and by which command.
    """

    what: str
    task: str
    check: Callable[[Sequence[int], Optional[str]], None]
    adapt: Callable[[Recipe, Text], Recipe]
    phases: Callable[[Folder, Recipe, Mapping[str, Any], int], List[Phase]]
    prepare: Callable[[Folder, Recipe, Sequence[str], Sequence[Phase]], Prepared]
    export: Callable[[Folder, Recipe, Path], Path]
    read_result: Callable[[Folder, Recipe, Pace], Dict[str, Any]]
    commands: Callable[[Path], List[Tuple[str, str]]]


LANGUAGE = Purpose(
    "a language model",
    PRETRAINING,
    lambda lengths, start_from: None,
    lambda recipe, text: recipe,
    phases,
    lambda folder, recipe, source, trainings: prepare(folder, recipe, source),
    lambda folder, recipe, run: export_model(folder, run),
    read_result,
    commands,
)
