"""Writes a model as a SavedModel, which TensorFlow loads without this project.

B texts or pairs · S tokens of each
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, Mapping

from checkpoints.export.arrays import EMBEDDING, ENCODER, Head
from checkpoints.pretrained.model_folder import PROMPTS
from checkpoints.pretrained.opening import open_pretrained
from checkpoints.pretrained.pretrained import Pretrained
from checkpoints.pretrained.sentence_transformers import embedding_settings
from checkpoints.pretrained.weights import CLASSIFIER
from execution.interface import Tensors
from execution.software.platform import SoftwarePlatform
from keras_extensions.backend import tf
from model.architecture import LAYER_OPTIONS, Architecture
from model.blocks import Block, build_weights, run_blocks
from model.conversion import convert
from model.huggingface import build_hf_model
from model.tasks import MASKED_LM, TASK_OF_CLASS
from utilities.errors import UserError

FLAG = "--saved-model"
SAVED_MODEL = "saved_model/1"  # TensorFlow Serving serves the subfolder with the highest number
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
DEFAULT, ONE_TEXT = "serving_default", "one_text"  # the signatures

# Hugging Face's names of the outputs of a model's last block, where they differ from those of this project.
_OUTPUTS = {
    ("masked_lm", "next_sentence"): ("prediction_logits", "seq_relationship_logits"),
    ("masked_lm",): ("logits",),
    ("embeddings",): ("sentence_embedding",),
    ("hidden",): ("last_hidden_state",),
}


def write_saved_model(folder: Path, head: Head, trained: Mapping[str, Any]) -> List[str]:
    """Write the model of an exported folder into its subfolder ``saved_model/1``; return notes on it.

    The fields ``trained`` of the architecture are those that the checkpoint decides.
    """
    written = open_pretrained(str(folder), FLAG)
    settings = embedding_settings(written) if head is EMBEDDING else None
    options = {name: trained[name] for name in LAYER_OPTIONS if name in trained}
    pooling = {} if settings is None else {"pooling": settings.pooling}
    blocks = _blocks(written, head, {**written.architecture, **options, **pooling})
    names = dict(zip(blocks[-1].writes, _OUTPUTS.get(blocks[-1].writes, blocks[-1].writes)))
    of_tokens = tf.TensorSpec((None, None), tf.int32)  # (B, S)

    @tf.function(input_signature=[of_tokens] * 3, autograph=False)
    def serve(input_ids: tf.Tensor, attention_mask: tf.Tensor, token_type_ids: tf.Tensor) -> Tensors:
        tensors = run_blocks(blocks, _features(input_ids, attention_mask, token_type_ids))
        outputs = {theirs: tensors[ours] for ours, theirs in names.items()}
        if settings is not None and settings.normalize:
            outputs = {name: tf.math.l2_normalize(value, axis=-1) for name, value in outputs.items()}
        return outputs

    @tf.function(input_signature=[of_tokens] * 2, autograph=False)
    def serve_one_text(input_ids: tf.Tensor, attention_mask: tf.Tensor) -> Tensors:
        return serve(input_ids, attention_mask, tf.zeros_like(input_ids))

    model = tf.Module()
    model.weights = [variable for block in blocks for variable in block.weights]  # saved, unlike the layers' code
    tf.saved_model.save(model, str(folder / SAVED_MODEL), {DEFAULT: serve, ONE_TEXT: serve_one_text})
    notes = [f"`{SAVED_MODEL}`, for TensorFlow alone: {', '.join(INPUTS)} → {', '.join(names.values())}."]
    if (folder / PROMPTS).is_file():
        notes.append(
            f"`{SAVED_MODEL}` embeds the tokens that it is given: a prompt of `{PROMPTS}` is part of the text."
        )
    return notes


def _features(input_ids: tf.Tensor, attention_mask: tf.Tensor, token_type_ids: tf.Tensor) -> Tensors:
    """Return the features that the blocks read; masked words are predicted at every position."""
    positions = tf.broadcast_to(tf.range(tf.shape(input_ids)[1]), tf.shape(input_ids))
    return {
        "input_ids": input_ids,
        "input_mask": attention_mask,
        "segment_ids": token_type_ids,
        "masked_lm_positions": positions,
    }


def _blocks(written: Pretrained, head: Head, architecture: Mapping[str, Any]) -> List[Block]:
    """Return the converted model in float32."""
    task, classifier = _task(head), written.weights.get(f"{CLASSIFIER}.weight")
    a = Architecture(**architecture, use_next_sentence=head.model != MASKED_LM)
    source = build_hf_model(task, a, seed=None, labels=2 if classifier is None else classifier.shape[0])
    written.set_initial_weights(source)
    if written.report.missing:
        raise UserError(
            f"{FLAG}: the checkpoint lacks {written.report.missing[0]}, so outputs would be random; leave the flag out,"
            " or add --encoder-only"
        )
    platform = SoftwarePlatform(seed=0, xla=False, recompute=False)
    blocks, conversion = convert(task, source, a, platform, () if head is ENCODER else None)
    build_weights(blocks, (), platform)
    assert conversion is not None, "all layers are replaced"
    conversion.transfer_weights(source)
    return blocks


def _task(head: Head) -> str:
    if head.model not in TASK_OF_CLASS:
        known = ", ".join(TASK_OF_CLASS)
        raise UserError(f"{FLAG}: {head.model} is not one of {known}; leave it out, or add --encoder-only")
    return TASK_OF_CLASS[head.model]
