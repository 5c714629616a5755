"""The section of a config for a sparse encoder."""

from __future__ import annotations

from typing import Optional

from pydantic import Field
from typing_extensions import Annotated, Literal

from settings.fields import MAY_CHANGE, BelowOne, Count, CountOrZero, Fraction, Names, Seed
from settings.sections import Section


class Sparsity(Section):
    """Block-sparse matrices in the encoder, whose pattern may change during training (arXiv 2108.06277)."""

    ratio: BelowOne = Field(0.0, description="Fraction of the blocks of sparse matrices that are absent; 0: dense.")
    block_size: Count = Field(16, description="Rows and columns of a block: 1, 4, 8 or 16.")
    layers: Names = Field(
        ["qkv", "projection", "intermediate", "output"],
        description="Fully connected matrices of the encoder layers that are sparse.",
    )
    method: Literal["static", "set", "rigl"] = Field(
        "set",
        description="static keeps the pattern; set and rigl drop the smallest blocks from time to time and grow as "
        "many, set at random, rigl where the gradient is largest. New blocks start at zero.",
    )
    pattern_updates: CountOrZero = Field(160, description="Changes of the pattern, evenly spaced over training.")
    prune_fraction: Fraction = Field(
        0.5, description="Fraction of the blocks that a change replaces at first; it falls to 0 as a cosine."
    )
    seed: Optional[Seed] = Field(None, description="Seed of the patterns. Unset: that of the run.")
    kernel: Annotated[Literal["auto", "native", "gather", "masked"], MAY_CHANGE] = Field(
        "auto",
        description="How to multiply: native is compiled for this CPU and runs outside of XLA, gather and masked (a "
        "dense product) run anywhere; auto takes what was measured to be faster. Changes results by rounding only.",
    )
