"""The section of a config for distillation."""

from __future__ import annotations

from typing import Any, Optional

from pydantic import Field
from typing_extensions import Annotated

from settings.fields import PER_PROCESS, Fraction, PathText, Positive
from settings.sections import Section


class Distillation(Section):
    """A teacher: a trained classifier, usually a larger one, whose outputs the model learns (arXiv 1503.02531)."""

    teacher: Annotated[Optional[PathText], PER_PROCESS] = Field(
        None,
        description="Trained classifier of the same task and classes: a run, a checkpoint or a Hugging Face folder. "
        "Its outputs for all samples are computed once and kept in output_dir. Unset: no teacher.",
    )
    weight: Fraction = Field(
        0.5, description="Share of the teacher in the loss; the rest is that of the labels. 1: no labels are learned."
    )
    temperature: Positive = Field(
        2.0,
        description="Divisor of the logits of both models before their probabilities are compared; above 1, the small "
        "probabilities of wrong classes count more. Not for a regression.",
    )
    unlabelled: Optional[PathText] = Field(
        None,
        description="More texts to train on, which only the teacher labels: CSV, TSV or JSON Lines with the columns of "
        "the training data's texts.",
    )


DISTILLATION: Any = Field(
    default_factory=Distillation, description="A teacher whose outputs the model learns (classification)."
)
