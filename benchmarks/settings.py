"""Sizes and settings that the benchmarks share. Nothing here imports TensorFlow or PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from model.architecture import Architecture

SEQUENCE_LENGTH = 128
MASKED_POSITIONS = 20
MICRO_BATCH = 8
VOCABULARY = 30528
LEARNING_RATE = 1e-4
WEIGHT_DECAY = 0.01
SEED = 1984
TINY_CONFIGS = (
    "configs/pretraining/pretrain_tiny_128_phase1.json", "configs/devlin.json", "configs/systems/cpu.json"
)  # fmt: skip

# Trains a number of steps, and returns the seconds they took.
Trainer = Callable[[int], float]


class Size(NamedTuple):
    """Sizes of one BERT, and the number of steps to measure."""

    layers: int
    hidden: int
    heads: int
    steps: int

    def config(self) -> dict[str, Any]:
        return {
            "num_hidden_layers": self.layers,
            "hidden_size": self.hidden,
            "num_attention_heads": self.heads,
            "intermediate_size": 4 * self.hidden,
        }


SIZES = {
    "tiny": Size(2, 128, 2, steps=60),
    "mini": Size(4, 256, 4, steps=30),
    "small": Size(4, 512, 8, steps=15),
    "base": Size(12, 768, 12, steps=6),
}


def make_architecture(size: str, **changes: Any) -> Architecture:
    """Return the architecture of Hugging Face's BERT, with all biases; ``changes`` override fields."""
    biases = ("use_qkv_bias", "use_qkv_split", "use_projection_bias", "use_cls_layer")
    fields: dict[str, Any] = {"vocab_size": VOCABULARY, **dict.fromkeys(biases, True), **SIZES[size].config()}
    return Architecture(**{**fields, **changes})


def small_architecture(layers: int, hidden: int, vocab_size: int) -> Architecture:
    """Return a BERT of any size with heads of 64."""
    return Architecture(**Size(layers, hidden, hidden // 64, steps=0).config(), vocab_size=vocab_size)


def without_dropout() -> dict[str, Any]:
    return {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
