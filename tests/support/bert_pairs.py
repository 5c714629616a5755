"""Hugging Face BERTs with random weights, the models that they are converted into, and data for both."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from data_utils.records.features import fine_tuning_features, pretraining_features
from execution.software.platform import SoftwarePlatform
from keras_extensions.backend import keras, tf
from keras_extensions.layer_replacement import Conversion, ResolvedMapping
from model.architecture import Architecture
from model.blocks import Block, assemble
from model.conversion import convert
from model.huggingface import build_hf_model
from model.tasks import CLASSIFICATION, PRETRAINING, SENTENCE_EMBEDDING, SQUAD, TOKEN_CLASSIFICATION

Arrays = Dict[str, np.ndarray]

LENGTH, MASKED = 24, 6
ROUNDING = {"float16": 2.0**-11, "bfloat16": 2.0**-8}  # relative error of one rounding
ALL_BIASES = dict.fromkeys(
    ("use_qkv_bias", "use_qkv_split", "use_projection_bias", "use_cls_layer", "use_prediction_bias"), True
)
TINY = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 96, "vocab_size": 120}
OUTPUTS = {
    PRETRAINING: ("masked_lm", "next_sentence"),
    SQUAD: ("start_logits", "end_logits"),
    CLASSIFICATION: ("logits",),
    TOKEN_CLASSIFICATION: ("logits",),
    SENTENCE_EMBEDDING: ("embeddings",),
}


def pretraining_shapes(sequence_length: int, masked_positions: int) -> Dict[str, Tuple[int, ...]]:
    """Return the shapes of a pre-training model's inputs, for one padded row."""
    return pretraining_features(sequence_length, masked_positions, 1).shapes


class Pair(NamedTuple):
    """A Hugging Face model, and this project's with the same weights; ``resolved_mappings`` say where each went."""

    source: Any
    model: keras.Model
    conversion: Optional[Conversion]
    blocks: List[Block]
    platform: SoftwarePlatform
    resolved_mappings: List[ResolvedMapping]

    def __call__(self, data: Arrays) -> Dict[str, tf.Tensor]:
        return self.model({name: data[name] for name in self.model.input_names})


def architecture(**changes: object) -> Architecture:
    """Return a small BERT with all biases and without dropout."""
    sizes = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "max_position_embeddings": 48}
    return Architecture(**{**TINY, **ALL_BIASES, **sizes, **changes})


def source_with_random_weights(a: Architecture, task: str = PRETRAINING, labels: int = 2) -> Any:
    """Return a Hugging Face model whose every weight is random, biases and norms too."""
    source = build_hf_model(task, a, seed=11, labels=labels)
    random = np.random.default_rng(5)
    for variable in source.weights:
        variable.assign(variable + random.normal(0, 0.05, variable.shape).astype("float32"))
    return source


def on_cpu(kind: Callable[..., SoftwarePlatform] = SoftwarePlatform, **options: Any) -> SoftwarePlatform:
    """Return a platform that neither compiles nor recomputes."""
    return kind(**{"seed": 1, "xla": False, "recompute": False, **options})


def pair_of(
    source: Any, a: Architecture, platform: SoftwarePlatform, task: str = PRETRAINING,
    shapes: Optional[Dict[str, Tuple[int, ...]]] = None, stages: Optional[Sequence[Sequence[str]]] = None,
    tail: Optional[Sequence[str]] = None, replace: bool = True, transfer: bool = True,
) -> Pair:  # fmt: skip
    """Return a source with its conversion: for rows of one sequence, in one stage, with the task's blocks as ``tail``.

    Without ``replace``, Hugging Face's layers are kept; without ``transfer``, the weights are left to the caller.
    """
    with platform.scope():
        blocks, conversion = convert(task, source, a, platform, tail, replace)
    if shapes is None:
        of_tokens = fine_tuning_features(LENGTH, 1).shapes
        shapes = pretraining_shapes(LENGTH, MASKED) if task == PRETRAINING else of_tokens
    names = stages or [[block.name for block in blocks]]
    outputs = OUTPUTS[task] if a.use_next_sentence else OUTPUTS[task][:1]
    model = assemble(blocks, shapes, outputs, names, platform)
    result = conversion.resolved_mappings() if conversion is not None else []
    if transfer and conversion is not None:
        conversion.transfer_weights(source)
    return Pair(source, model, conversion, blocks, platform, result)


def converted(a: Architecture, sequence_length: int = LENGTH, masked_positions: int = MASKED, **platform: Any) -> Pair:
    """Return a pre-training model of Hugging Face with random weights, and its conversion."""
    shapes = pretraining_shapes(sequence_length, masked_positions)
    return pair_of(source_with_random_weights(a), a, on_cpu(**platform), shapes=shapes)


def batch(a: Architecture, size: int = 4, sequence_length: int = LENGTH, masked: int = MASKED, seed: int = 0) -> Arrays:
    """Return a pre-training batch with padding, and with fewer masked tokens in some rows than in others."""
    random = np.random.default_rng(seed)
    lengths = random.integers(sequence_length // 2, sequence_length + 1, size)
    mask = (np.arange(sequence_length) < lengths[:, None]).astype("int32")
    positions = np.stack([np.sort(random.permutation(sequence_length // 2)[:masked]) for _ in range(size)])
    weights = (np.arange(masked) < random.integers(1, masked + 1, size)[:, None]).astype("float32")
    return {
        "input_ids": random.integers(0, a.vocab_size, (size, sequence_length)).astype("int32"),
        "input_mask": mask,
        "segment_ids": random.integers(0, 2, (size, sequence_length)).astype("int32"),
        "masked_lm_positions": positions.astype("int32"),
        "masked_lm_ids": random.integers(0, a.vocab_size, (size, masked)).astype("int32"),
        "masked_lm_weights": weights,
        "next_sentence_labels": random.integers(0, 2, (size, 1)).astype("int32"),
    }


def with_spans(data: Arrays, seed: int = 2) -> Arrays:
    random, (rows, length) = np.random.default_rng(seed), data["input_ids"].shape
    names = ("start_positions", "end_positions")
    return {**data, **{name: random.integers(0, length, (rows, 1)).astype("int32") for name in names}}


def dataset_of(updates: Sequence[Arrays], micro_batches: int) -> tf.data.Dataset:
    """Return a data set of updates, (rows, …), divided into micro batches, (A, B, …)."""
    return tf.data.Dataset.from_tensor_slices(
        {
            name: np.stack([update[name].reshape(micro_batches, -1, *values.shape[1:]) for update in updates])
            for name, values in updates[0].items()
        }
    )


def weights_by_name(blocks: Sequence[Block]) -> Arrays:
    """Return all weights; two models of the same blocks have the same names."""
    return {f"{block.name}/{i}": w.numpy() for block in blocks for i, w in enumerate(block.weights)}


def hugging_face(source: Any, data: Arrays, **labels: Any) -> Any:
    return source(
        input_ids=data["input_ids"], attention_mask=data["input_mask"], token_type_ids=data["segment_ids"], **labels
    )


def source_outputs(source: Any, data: Arrays) -> Dict[str, tf.Tensor]:
    """Return Hugging Face's pre-training logits, with those of words at the masked positions only."""
    outputs = hugging_face(source, data)
    words = tf.gather(outputs.prediction_logits, data["masked_lm_positions"], batch_dims=1)
    return {"masked_lm": words, "next_sentence": outputs.seq_relationship_logits}


def assert_same_logits(ours: Dict[str, Any], theirs: Dict[str, Any], message: str = "") -> None:
    """Compare the logits of every output that both give."""
    for name in theirs:
        np.testing.assert_allclose(ours[name], theirs[name], atol=1e-5, rtol=1e-5, err_msg=f"{name} {message}")


def loss_of(outputs: Dict[str, tf.Tensor], data: Arrays) -> tf.Tensor:
    """Return the sum of the plain mean losses of pre-training, written out as in the paper."""
    words = tf.nn.log_softmax(outputs["masked_lm"])
    chosen = tf.gather(words, data["masked_lm_ids"], batch_dims=2)
    masked = -tf.reduce_sum(chosen * data["masked_lm_weights"]) / np.sum(data["masked_lm_weights"])
    following = tf.gather(tf.nn.log_softmax(outputs["next_sentence"]), data["next_sentence_labels"], batch_dims=1)
    return masked - tf.reduce_mean(following)


def assert_same_gradients(pair: Pair, ours: Sequence[Any], theirs: Sequence[Any]) -> None:
    """Compare the gradients of all weights, which the conversion pairs, to 1e-5 of the largest."""
    of_ours, of_theirs = (
        {id(variable): tf.convert_to_tensor(gradient).numpy() for variable, gradient in zip(variables, gradients)}
        for variables, gradients in ((pair.model.trainable_variables, ours), (pair.source.trainable_variables, theirs))
    )
    for _, sources, target in pair.resolved_mappings:
        expected = np.concatenate([of_theirs.pop(id(source)) for source in sources], axis=-1)
        # Some gradients are zero up to rounding: those of the keys' biases, on which softmax does not depend.
        limit = 1e-5 * np.abs(expected).max() + 1e-7
        np.testing.assert_allclose(of_ours.pop(id(target)), expected, rtol=0, atol=limit, err_msg=sources[0].name)
    assert not of_ours and not of_theirs
