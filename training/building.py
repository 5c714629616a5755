"""Builds the model to train from a Hugging Face model, for any task."""

from __future__ import annotations

import contextlib
from typing import Mapping, Sequence, Tuple

from execution.interface import Platform
from model.architecture import Architecture
from model.blocks import assemble, build_weights
from model.conversion import convert
from model.huggingface import build_hf_model
from model.tasks import expected_blocks
from settings.derived import fits_stages, head_layout
from settings.schema import TrainingConfig
from training.rooms import NEW_MODEL
from training.task import BuiltModel, SetInitialWeights


def build_model(
    config: TrainingConfig,
    task: str,
    architecture: Architecture,
    shapes: Mapping[str, Tuple[int, ...]],
    outputs: Sequence[str],
    platform: Platform,
    set_initial_weights: SetInitialWeights,
    labels: int = 2,
) -> BuiltModel:
    """Return Hugging Face's BERT for a task, converted unless ``replace_layers`` is false.

    The ``shapes`` and ``outputs`` are those of :func:`model.blocks.assemble`, the ``labels`` outputs of a classifier.
    """
    # Hugging Face's own layers are created on the machine if they are trained.
    with contextlib.nullcontext() if config.replace_layers else platform.scope():
        seed = None if platform.only_predicts else config.seed
        source = build_hf_model(task, architecture, seed, labels)
    set_initial_weights(source)
    with platform.scope():
        given = config.ipu_config.pipeline_stages
        tail = head_layout(given or [expected_blocks(task, 1, architecture.use_next_sentence)])
        blocks, conversion = convert(task, source, architecture, platform, tail, config.replace_layers)
    stages = given if given and fits_stages(given, architecture) else [[block.name for block in blocks]]
    if platform.only_predicts:
        model = None
        build_weights(blocks, shapes, platform)
    else:
        model = assemble(blocks, shapes, outputs, stages, platform)
    if conversion is not None:
        for prepare in NEW_MODEL:
            prepare(config, blocks)
        conversion.transfer_weights(source)
    return BuiltModel(blocks, conversion, model)
