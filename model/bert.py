"""BERT as a functional Keras model, assembled from blocks and laid out in pipeline stages."""

from __future__ import annotations

from typing import List, Mapping, Sequence, Tuple

from execution.interface import Platform
from keras_extensions.backend import keras
from model.blocks import Block, block_inputs, run_blocks


def assemble(
    blocks: List[Block],
    shapes: Mapping[str, Tuple[int, ...]],
    outputs: Sequence[str],
    stages: Sequence[Sequence[str]],
    platform: Platform,
) -> keras.Model:
    """Return a functional model of ``blocks``.

    Args:
        blocks: in order.
        shapes: of the features of a row, by name. They decide whether rows are packs: only those of packs say where
            their sequences lie.
        outputs: names of the tensors to return, as a dict.
        stages: partition of the blocks, as in ``ipu_config.pipeline_stages``: ``hid`` for each encoder layer.
        platform: gives the model its class and lays out the stages.
    """
    for block in blocks:
        block.fit_rows(shapes)
    with platform.scope():
        inputs = {name: platform.model_input(shapes[name], "int32", name) for name in block_inputs(blocks)}
        by_name = {block.name: block for block in blocks}
        tensors, layout = inputs, named_stages(blocks, stages)
        for number, names in enumerate(layout):
            with platform.stage(number):
                tensors = run_blocks([by_name[name] for name in names], tensors)
        return platform.model(inputs, {name: tensors[name] for name in outputs}, layout)


def named_stages(blocks: Sequence[Block], stages: Sequence[Sequence[str]]) -> List[List[str]]:
    """Return the names of the blocks of each stage, from stages in which all encoder layers are called ``hid``."""
    names = iter([block.name for block in blocks])
    named = [[next(names) for _ in stage] for stage in stages]
    assert next(names, None) is None, "stages name fewer blocks than the model has"
    return named
