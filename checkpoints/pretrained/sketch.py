"""A sketch of the model: one layer of a few numbers, built, converted and saved as a real one is.

It tells by which names a model's weights are saved, and what they were made of; so there is no second list of names.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Sequence, Set, Tuple

from checkpoints.pretrained.names import Name, from_tensorflow, is_encoder_weight
from checkpoints.state import by_name
from data_utils.records.features import pretraining_features
from execution.software.platform import SoftwarePlatform
from keras_extensions.backend import keras, tf
from keras_extensions.conversion import Route
from model.architecture import SQUAD, Architecture
from model.blocks import Block, block_inputs, run_blocks
from model.conversion import convert
from model.huggingface import untrained

VARIABLE = "/.ATTRIBUTES/VARIABLE_VALUE"  # TensorFlow's, of every variable in a checkpoint
_SIZES = {
    "hidden_size": 8, "vocab_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 8,
    "max_position_embeddings": 8,
}  # fmt: skip
_BIASES = {"use_projection_bias": True, "use_cls_layer": True, "use_prediction_bias": True}
# Between them these sketches have every name that a checkpoint can hold; None: Hugging Face's own layers.
SKETCHES: Dict[str, Optional[Dict[str, bool]]] = {
    "merged": {**_BIASES, "use_qkv_split": False, "use_qkv_bias": False},
    "split": {**_BIASES, "use_qkv_split": True, "use_qkv_bias": True},
    "unconverted": None,
}


@functools.lru_cache(maxsize=None)
def saved_names(task: str, sketch: str) -> Mapping[str, Sequence[Name]]:
    """Name in the checkpoint of a one-layer model → PyTorch's names of what lies side by side in that weight.

    Args:
        task: of the model.
        sketch: one of ``SKETCHES``.
    """
    source, blocks, routes = _sketch(task, SKETCHES[sketch])
    origins = {id(variable): [variable] for variable in source.weights}
    origins.update({id(route.target): route.sources for route in routes})
    return {
        name: [from_tensorflow(origin.name) for origin in origins[id(variable)]]
        for name, variable in _names_in_checkpoint(blocks).items()
    }


def _sketch(task: str, options: Optional[Dict[str, bool]]) -> Tuple[keras.Model, List[Block], List[Route]]:
    """A small source model, the blocks made of it, and the ways of its weights (none if it is not converted)."""
    a = Architecture(**_SIZES, **(options or {}))
    platform = SoftwarePlatform(seed=0, xla=False, recompute=False)
    source = untrained(task, a, seed=0)
    blocks, conversion = convert(task, source, a, platform, replace_layers=options is not None)
    shapes = pretraining_features(max_seq_length=4, max_predictions_per_seq=2, vocab_size=8).shapes
    run_blocks(blocks, {name: tf.zeros((1, *shapes[name]), tf.int32) for name in block_inputs(blocks)})
    return source, blocks, conversion.routes() if conversion else []


def _names_in_checkpoint(blocks: List[Block]) -> Dict[str, tf.Variable]:
    """What training's checkpoints call each variable of ``blocks``.

    Every variable is set to a number of its own; saved, the numbers tell.
    """
    variables = list({id(variable): variable for block in blocks for variable in block.weights}.values())
    for number, variable in enumerate(variables):
        variable.assign(tf.fill(variable.shape, float(number)))
    with tempfile.TemporaryDirectory() as folder:
        prefix = str(Path(folder) / "sketch")
        tf.train.Checkpoint(**by_name(blocks)).write(prefix)
        reader = tf.train.load_checkpoint(prefix)
        names = [name for name in reader.get_variable_to_shape_map() if name.endswith(VARIABLE)]
        return {name[: -len(VARIABLE)]: variables[int(reader.get_tensor(name).flat[0])] for name in names}


def encoder_names(layers: int) -> Set[str]:
    """PyTorch's names of the weights that a BERT of so many layers cannot do without."""
    source = untrained(SQUAD, Architecture(**_SIZES), seed=0)
    names = [from_tensorflow(variable.name).name for variable in source.weights]
    first = [name for name in names if is_encoder_weight(name)]
    return {name.replace(".layer.0.", f".layer.{number}.") for name in first for number in range(layers)}
