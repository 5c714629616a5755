"""The rules of the section for a sparse encoder."""

from __future__ import annotations

from typing import Iterator, Set

from model.architecture import ENCODER_PARTS
from settings.architecture import known_architecture
from settings.problems import SettingError
from settings.schema import TrainingConfig

STATIC, RIGL = "static", "rigl"  # values of ``method``

BLOCK_SIZES = (1, 4, 8, 16)


def fitting_block_size(*widths: int) -> int:
    """Return the largest block size that divides all widths."""
    return max(size for size in BLOCK_SIZES if not any(width % size for width in widths))


def sparse_matrices(config: TrainingConfig, task: str) -> Iterator[SettingError]:
    size, sizes = config.sparsity.block_size, known_architecture(config, task)
    if size not in BLOCK_SIZES:
        yield SettingError(["sparsity.block_size"], "blocks have 1, 4, 8 or 16 rows and columns", "set it to 16")
    elif config.sparsity.ratio and sizes is not None:
        widths = {name: getattr(sizes, name) for name in ("hidden_size", "intermediate_size")}
        wrong = next((name for name, width in widths.items() if width % size), None)
        if wrong is not None:
            fields = ["sparsity.block_size", f"bert_config.{wrong}" if config.bert_config else config.weights_key]
            fitting = fitting_block_size(*widths.values())
            yield SettingError(fields, "blocks must divide the matrices", f"set it to {fitting}")
    unknown = [name for name in config.sparsity.layers if name not in ENCODER_PARTS]
    if unknown:
        known = ", ".join(ENCODER_PARTS)
        yield SettingError(["sparsity.layers"], f"{unknown[0]} is not one of {known}", "name some of those")
    if config.sparsity.ratio:
        yield from _sparse_layers(config)


def _sparse_layers(config: TrainingConfig) -> Iterator[SettingError]:
    if not config.replace_layers:
        yield SettingError(
            ["sparsity.ratio", "replace_layers"], "Hugging Face's own layers are dense", "set replace_layers to true"
        )
    elif config.runs_on_ipus:
        yield SettingError(
            ["sparsity.ratio", "execution.platform"],
            "sparse layers run only on stock TensorFlow",
            "set execution.platform to software, or ratio to 0",
        )
    if config.sparsity.kernel != "native":
        return
    if config.execution.xla:
        yield SettingError(
            ["sparsity.kernel", "execution.xla"], "native products run outside of XLA", "set execution.xla to false"
        )
    elif config.sparsity.block_size == 1:
        yield SettingError(
            ["sparsity.kernel", "sparsity.block_size"],
            "there are no native products of single weights",
            "set kernel to auto, or block_size to 4, 8 or 16",
        )


def fields_to_keep(config: TrainingConfig) -> Set[str]:
    """Return the fields on which changes of the pattern depend: they happen at the end of a logging period, and RigL
    grows blocks by the gradients of a micro batch.
    """
    sparsity, fields = config.sparsity, set()
    if sparsity.ratio and sparsity.method != STATIC:
        fields.add("global_batches_per_log")
    if sparsity.ratio and sparsity.method == RIGL:
        fields.add("global_batch.micro_batch_size")
    return fields
