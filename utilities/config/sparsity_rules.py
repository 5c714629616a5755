"""Rules of the section ``sparsity``."""

from __future__ import annotations

from model.architecture import SPARSE_PARTS
from utilities.config.figures import bert_sizes
from utilities.config.problems import FieldError
from utilities.config.schema import TrainingConfig

BLOCK_SIZES = (1, 4, 8, 16)


def blocks_fit(config: TrainingConfig, task: str) -> None:
    """Blocks come in four sizes and divide the encoder's matrices."""
    size, sizes = config.sparsity.block_size, bert_sizes(config)
    if size not in BLOCK_SIZES:
        raise FieldError(["sparsity.block_size"], "blocks are of 1, 4, 8 or 16 rows and columns", "set it to 16")
    if not config.sparsity.ratio or sizes is None:
        return
    for name in ("hidden_size", "intermediate_size"):
        if getattr(sizes, name) % size:
            fitting = max(b for b in BLOCK_SIZES if getattr(sizes, name) % b == 0)
            raise FieldError(
                ["sparsity.block_size", f"bert_config.{name}"],
                "blocks must divide the matrices",
                f"set it to {fitting}",
            )


def sparse_layers_are_known(config: TrainingConfig, task: str) -> None:
    """Which matrices there are."""
    unknown = [name for name in config.sparsity.layers if name not in SPARSE_PARTS]
    if unknown:
        known = ", ".join(SPARSE_PARTS)
        raise FieldError(["sparsity.layers"], f"{unknown[0]} is none of {known}", "name some of those")


def sparsity_needs_this_projects_layers(config: TrainingConfig, task: str) -> None:
    """Hugging Face's own layers are dense, and so are those of IPUs."""
    if not config.sparsity.ratio:
        return
    if not config.replace_layers:
        raise FieldError(
            ["sparsity.ratio", "replace_layers"], "Hugging Face's own layers are dense", "set replace_layers to true"
        )
    if config.execution.platform == "graphcore":
        raise FieldError(
            ["sparsity.ratio", "execution.platform"],
            "sparse layers run on stock TensorFlow alone",
            "set execution.platform to software, or ratio to 0",
        )


def native_code_runs_outside_xla(config: TrainingConfig, task: str) -> None:
    """A function that XLA compiles as a whole cannot call this machine's own code, which needs real blocks."""
    if not config.sparsity.ratio or config.sparsity.kernel != "native":
        return
    if config.execution.xla:
        raise FieldError(
            ["sparsity.kernel", "execution.xla"], "native products run outside of XLA", "set execution.xla to false"
        )
    if config.sparsity.block_size == 1:
        raise FieldError(
            ["sparsity.kernel", "sparsity.block_size"],
            "there are no native products of single weights",
            "set kernel to auto, or block_size to 4, 8 or 16",
        )


RULES = (
    blocks_fit,
    sparse_layers_are_known,
    sparsity_needs_this_projects_layers,
    native_code_runs_outside_xla,
)
