"""What a config field is made of: value types, annotations, and a flat view of a schema.

A field is declared once, in ``schema.py``, ``sections.py`` or ``data_sections.py``. Its type sets the bounds and the
words that an error message uses; ``Field`` has the default and the help text; annotations in ``Annotated`` say
everything else that the program needs to know about the field::

    keep_last: Annotated[Optional[Count], MAY_CHANGE] = Field(5, description="Newest checkpoints to keep; …")

Validation is strict: neither a text nor a switch is read as a number. The one exception is that a number without a
fraction (``1e6``, ``4096.0``) counts as a whole number, because JSON has only one kind of number.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Iterator, List, Optional, Sequence, Tuple, Type, TypeVar, Union

from pydantic import BaseModel, BeforeValidator, Field
from typing_extensions import Annotated, Literal, get_args, get_origin

# Annotations of fields


class ResumePolicy(enum.Enum):
    """How far the value of a field may vary within one run. A field without this annotation is fixed."""

    FIXED = "influences the outcome: the same in all processes and whenever the run is resumed"
    MAY_CHANGE = "may change when the run is resumed; all processes agree"
    PER_PROCESS = "may change when the run is resumed, and each process may have its own"


MAY_CHANGE, PER_PROCESS = ResumePolicy.MAY_CHANGE, ResumePolicy.PER_PROCESS


@dataclass(frozen=True)
class Equivalent:
    """Annotation that names values with the same outcome except for rounding; a resumed run may change between them."""

    values: Tuple[Any, ...]


@dataclass(frozen=True)
class FileOnly:
    """Annotation of a key that has a meaning only in a file, and therefore has no flag."""


@dataclass(frozen=True)
class OtherFlag:
    """Annotation that gives a field a second flag, which published commands use."""

    flag: str


Annotation = TypeVar("Annotation", ResumePolicy, Equivalent, FileOnly, OtherFlag)


# Value types


@dataclass(frozen=True)
class Kind:
    """How a field's value is read from a flag (``name``) and described in messages (``expected``)."""

    name: str
    expected: str


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _none_word(value: Any) -> Any:
    return None if isinstance(value, str) and value.lower() == "none" else value


def _split_stages(value: Any) -> Any:
    """Accept one text, "hid hid", for the stage ["hid", "hid"]."""
    if not isinstance(value, list):
        return value
    return [stage.split() if isinstance(stage, str) else stage for stage in value]


def _alone(value: Any) -> Any:
    """Accept a list of one text, as the flag gives it, for the text."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


_WHOLE = BeforeValidator(_whole)  # placed after the bounds, which must reach the JSON Schema
_Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]
_LIMIT = 2**63 - 1  # TensorFlow has no larger whole numbers

Count = Annotated[int, Field(strict=True, ge=1, le=_LIMIT), _WHOLE, Kind("int", "a whole number, 1 or more")]
CountOrZero = Annotated[int, Field(strict=True, ge=0, le=_LIMIT), _WHOLE, Kind("int", "a whole number, 0 or more")]
# A dimension of a tensor. The limit is far above any BERT's, and keeps products of sizes within TensorFlow's integers.
Size = Annotated[
    int, Field(strict=True, ge=1, le=10**7), _WHOLE, Kind("int", "a whole number, 1 or more and at most 10,000,000")
]
Interval = Annotated[
    int, Field(strict=True, ge=1, le=_LIMIT), _WHOLE, Kind("int", 'a whole number, 1 or more, or "epoch"')
]
Layers = Annotated[int, Field(strict=True, ge=1, le=10_000), _WHOLE, Kind("int", "a whole number from 1 to 10,000")]
Workers = Annotated[
    int, Field(strict=True, ge=1, le=1024), _WHOLE, Kind("int", "a whole number, 1 or more and at most 1,024")
]
Seed = Annotated[
    int, Field(strict=True, ge=0, le=2**32 - 1), _WHOLE, Kind("int", "a whole number from 0 to 4294967295")
]
Finite = Annotated[_Finite, Kind("float", "a number")]
Positive = Annotated[_Finite, Field(gt=0), Kind("float", "a number above 0")]
AboveOne = Annotated[_Finite, Field(gt=1), Kind("float", "a number above 1")]
NonNegative = Annotated[_Finite, Field(ge=0), Kind("float", "a number, 0 or more")]
Fraction = Annotated[_Finite, Field(ge=0, le=1), Kind("float", "a number from 0 to 1")]
BelowOne = Annotated[_Finite, Field(ge=0, lt=1), Kind("float", "a number from 0 up to, not including, 1")]
LossScale = Annotated[_Finite, Field(gt=0), Kind("float", 'a number above 0, "auto", or null or "none" for no scaling')]
LossScaleWord = BeforeValidator(_none_word, json_schema_input_type=Union[LossScale, Literal["auto", "none"], None])
Text = Annotated[str, Field(strict=True, min_length=1), Kind("str", "a text that is not empty")]
PathText = Annotated[
    str, Field(strict=True, min_length=1, json_schema_extra={"format": "path"}), Kind("path", "a path")
]
Names = Annotated[List[Text], Kind("list[str]", "a list of texts")]
Columns = Annotated[List[Text], Field(min_length=1, max_length=2), Kind("list[str]", "a list of one or two texts")]
TextColumns = Annotated[
    List[Text], Field(min_length=2, max_length=3), Kind("list[str]", "a list of two or three texts")
]
LabelColumns = Annotated[
    Union[Text, Annotated[List[Text], Field(min_length=2)]],
    BeforeValidator(_alone, json_schema_input_type=Union[Text, List[Text]]),
    Kind("list[str]", "a text, or a list of texts"),
]
Devices = Annotated[
    List[CountOrZero], Field(min_length=1), Kind("list[int]", "a list of IPU numbers, each a whole number, 0 or more")
]
Proportion = Annotated[_Finite, Field(gt=0, le=1)]
Proportions = Annotated[
    List[Proportion], Field(min_length=1), Kind("list[float]", "a list of numbers, each above 0 and at most 1")
]
Stage = Annotated[List[Text], Field(min_length=1)]
Stages = Annotated[
    List[Stage],
    BeforeValidator(_split_stages, json_schema_input_type=List[Union[Text, Stage]]),
    Field(min_length=1),
    Kind("stages", 'a list of stages, each a list of block names (or one text such as "hid hid"), none of them empty'),
]


# The flat view


@dataclass(frozen=True)
class Leaf:
    """One value of the config."""

    path: Tuple[str, ...]
    kind: Kind
    default: Any
    description: str
    choices: Tuple[str, ...]
    optional: bool
    annotations: Tuple[Any, ...] = ()

    @property
    def name(self) -> str:
        """Dotted name, ``global_batch.replicas``."""
        return ".".join(self.path)

    @property
    def flag(self) -> str:
        """Command-line flag, ``--global-batch.replicas``."""
        return "--" + self.name.replace("_", "-")

    @property
    def resume_policy(self) -> ResumePolicy:
        return self.annotation(ResumePolicy) or ResumePolicy.FIXED

    def annotation(self, kind: Type[Annotation]) -> Optional[Annotation]:
        """Return the annotation of this kind, or None if the field has none."""
        return next((each for each in self.annotations if isinstance(each, kind)), None)


@dataclass(frozen=True)
class SectionInfo:
    """One object of the config; ``path`` is empty for the config itself, ``optional`` says whether it may be null."""

    path: Tuple[str, ...]
    description: str
    keys: Tuple[str, ...]
    optional: bool = False


def walk(
    model: Type[BaseModel], path: Tuple[str, ...], description: str, optional: bool = False
) -> Iterator[Union[Leaf, SectionInfo]]:
    """Yield the sections and leaf fields of a model in their order, except keys that have a meaning only in files."""
    yield SectionInfo(path, description, tuple(model.model_fields), optional)
    for name, field in model.model_fields.items():
        annotations = tuple(field.metadata)
        if any(isinstance(mark, FileOnly) for mark in annotations):
            continue
        section = _section_type(field.annotation)
        if section is not None:
            yield from walk(section, (*path, name), field.description or "", field.get_default() is None)
            continue
        kind, choices, optional = _kind(field.annotation, annotations)
        assert kind is not None and field.description, f"{model.__name__}.{name} lacks a kind or a description"
        yield Leaf((*path, name), kind, field.get_default(), field.description, choices, optional, annotations)


def _section_type(annotation: Any) -> Optional[Type[BaseModel]]:
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _kind(annotation: Any, metadata: Tuple[Any, ...]) -> Tuple[Optional[Kind], Tuple[str, ...], bool]:
    """Return the value type, the enumerated choices, and whether null is allowed."""
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *more = get_args(annotation)
        return _kind(inner, tuple(more))
    if origin is Union:
        members = [m for m in get_args(annotation) if m is not type(None)]
        kind, choices, _ = _kind(members[0], ())
        kind = next((item for item in metadata if isinstance(item, Kind)), kind)
        return kind, choices, len(members) < len(get_args(annotation))
    for item in metadata:
        if isinstance(item, Kind):
            return item, (), False
    if origin is Literal:
        choices = tuple(str(c) for c in get_args(annotation))
        return Kind("choice", ("one of " if len(choices) > 1 else "") + ", ".join(choices)), choices, False
    return Kind("bool", "true or false") if annotation is bool else None, (), False


def is_in(name: str, chosen: Sequence[str]) -> bool:
    """Return whether a field is one of the chosen ones, or in a section that is."""
    return any(name == each or name.startswith(f"{each}.") for each in chosen)


def value_at(tree: Any, name: str) -> Any:
    """Return the value of a dotted name in a config object or nested dicts; None if a section is absent or not one."""
    for key in name.split("."):
        if tree is None:
            return None
        tree = tree.get(key) if isinstance(tree, dict) else getattr(tree, key, None)
    return tree
