"""From a Hugging Face model to the model that is trained, for every task alike."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, ContextManager, Dict, List, Optional, Sequence, Tuple

from execution.interface import Platform
from keras_extensions.backend import keras
from keras_extensions.conversion import Conversion
from model.architecture import HID, expected_blocks
from model.bert import assemble
from model.blocks import Block
from utilities.config.figures import starts_from_checkpoint
from utilities.config.schema import TrainingConfig
from utilities.training.sparsity import choose_patterns
from utilities.training.task import BuiltModel, Fill

Converted = Tuple[List[Block], Optional[Conversion]]


def source_scope(config: TrainingConfig, platform: Platform) -> ContextManager[Any]:
    """Where Hugging Face's model is made: on the machine if its own layers are trained, else beside it."""
    return contextlib.nullcontext() if config.replace_layers else platform.scope()


def build_model(
    config: TrainingConfig,
    source: keras.Model,
    recipe: Callable[[], Converted],
    shapes: Dict[str, Tuple[int, ...]],
    outputs: Sequence[str],
    platform: Platform,
    fill: Fill,
) -> BuiltModel:
    """The assembled model, with the weights of ``source``.

    Args:
        config: says how the blocks are staged.
        source: Hugging Face's model, with random weights.
        recipe: makes blocks from ``source``.
        shapes, outputs: of the model, see :func:`model.bert.assemble`.
        platform: where it runs.
        fill: gives ``source`` the weights to start from.
    """
    fill(source)
    with platform.scope():
        blocks, conversion = recipe()
    stages = config.ipu_config.pipeline_stages or [[block.name for block in blocks]]
    model = assemble(blocks, shapes, outputs, stages, platform)
    if conversion is not None:
        if not starts_from_checkpoint(config):
            choose_patterns(config, blocks)
        conversion.carry_weights(source)
    return BuiltModel(model, blocks, conversion)


def tail_blocks(config: TrainingConfig, task: str) -> List[str]:
    """Names of the blocks after the encoder layers, as the config's stages have them."""
    stages = config.ipu_config.pipeline_stages or [expected_blocks(task, num_layers=1)]
    blocks = [block for stage in stages for block in stage]
    return blocks[blocks.index(HID) + blocks.count(HID) :]
