"""The field of the section ``execution`` for a pipeline."""

from __future__ import annotations

from typing import Optional

from pydantic import Field
from typing_extensions import Annotated

from settings.fields import MAY_CHANGE, Workers

PipelineDevices = Annotated[
    Optional[Workers],
    MAY_CHANGE,
    Field(
        description="Devices that the pipeline's IPUs are spread over; on a CPU, this many logical devices that share "
        "its cores. Unset: every GPU, or the CPU as one device, on which stages run in sequence.",
    ),
]
