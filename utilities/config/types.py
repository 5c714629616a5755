"""The value types of config fields, each with the words that an error message uses for it.

Values are taken strictly: text is never read as a number, nor a switch as a number. The one kindness is
that a number without a fraction (``1e6``, ``4096.0``) serves as a whole number: JSON has one kind of number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, List, Union

from pydantic import BeforeValidator, Field
from typing_extensions import Annotated, Literal


@dataclass(frozen=True)
class Kind:
    """How a field's value is read from a flag (``name``) and described in messages (``expected``)."""

    name: str
    expected: str


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _optional_none_word(value: Any) -> Any:
    return None if isinstance(value, str) and value.lower() == "none" else value


def _stages(value: Any) -> Any:
    """A stage may be one text, "hid hid", in place of the list ["hid", "hid"]."""
    if not isinstance(value, list):
        return value
    return [stage.split() if isinstance(stage, str) else stage for stage in value]


# Numbers beyond 64 bits cannot reach TensorFlow, so they are refused here.
_LIMIT = 2**63 - 1

Count = Annotated[
    int,
    BeforeValidator(_whole),
    Field(strict=True, ge=1, le=_LIMIT),
    Kind("int", "a whole number, 1 or more"),
]
Layers = Annotated[
    int,
    BeforeValidator(_whole),
    Field(strict=True, ge=1, le=10_000),  # the stages list every layer by name
    Kind("int", "a whole number from 1 to 10,000"),
]
CountOrZero = Annotated[
    int,
    BeforeValidator(_whole),
    Field(strict=True, ge=0, le=_LIMIT),
    Kind("int", "a whole number, 0 or more"),
]
Seed = Annotated[
    int,
    BeforeValidator(_whole),
    Field(strict=True, ge=0, le=2**32 - 1),
    Kind("int", "a whole number from 0 to 4294967295"),
]
Seeds = Annotated[
    List[Seed],
    Field(min_length=1),
    Kind("list[int]", "a list of whole numbers from 0 to 4294967295"),
]
Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False), Kind("float", "a number above 0")]
AboveOne = Annotated[float, Field(strict=True, gt=1, allow_inf_nan=False), Kind("float", "a number above 1")]
NonNegative = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False), Kind("float", "a number, 0 or more")]
Fraction = Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False), Kind("float", "a number from 0 to 1")]
BelowOne = Annotated[
    float,
    Field(strict=True, ge=0, lt=1, allow_inf_nan=False),
    Kind("float", "a number from 0 up to, not including, 1"),
]
LossScale = Annotated[
    float,
    Field(strict=True, gt=0, allow_inf_nan=False),
    Kind("float", 'a number above 0, "auto", or null or "none" for no scaling'),
]
LossScaleWord = BeforeValidator(
    _optional_none_word, json_schema_input_type=Union[LossScale, Literal["auto", "none"], None]
)
Text = Annotated[str, Field(strict=True, min_length=1), Kind("str", "a text that is not empty")]
PathText = Annotated[
    str, Field(strict=True, min_length=1, json_schema_extra={"format": "path"}), Kind("path", "a path")
]
Names = Annotated[List[Text], Kind("list[str]", "a list of texts")]
Devices = Annotated[
    List[CountOrZero],
    Field(min_length=1),
    Kind("list[int]", "a list of IPU numbers, each a whole number, 0 or more"),
]
Proportion = Annotated[float, Field(strict=True, gt=0, le=1, allow_inf_nan=False)]
Proportions = Annotated[
    List[Proportion],
    Field(min_length=1),
    Kind("list[float]", "a list of numbers, each above 0 and at most 1"),
]
Stage = Annotated[List[Text], Field(min_length=1)]
Stages = Annotated[
    List[Stage],
    BeforeValidator(_stages, json_schema_input_type=List[Union[Text, Stage]]),
    Field(min_length=1),
    Kind(
        "stages",
        'a list of stages, each a list of block names (or one text such as "hid hid"), none of them empty',
    ),
]
