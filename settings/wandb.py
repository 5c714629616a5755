"""The fields of Weights & Biases (W&B)."""

from __future__ import annotations

from typing import Optional

from pydantic import Field
from typing_extensions import Annotated

from settings.fields import MAY_CHANGE, Names, OtherFlag, Text

EnableWandb = Annotated[bool, MAY_CHANGE, Field(description="Track the run with Weights & Biases.")]
WandbEntity = Annotated[
    Optional[Text],
    MAY_CHANGE,
    OtherFlag("--wandb-entity"),
    Field(description="W&B user or team. Unset: the logged-in user's."),
]
WandbProject = Annotated[Optional[Text], MAY_CHANGE, Field(description="W&B project.")]
WandbTags = Annotated[Optional[Names], MAY_CHANGE, Field(description="W&B tags.")]
