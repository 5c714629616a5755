"""What is measured: sizes, competitors, and one measurement as a process of its own.

Nothing here imports TensorFlow or PyTorch, so that the process that starts the others stays small: the peak
memory that Linux reports for a process is at least that of the process it was started from.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from model.architecture import PRETRAINING, Architecture, model_flops_per_sample

SEQUENCE_LENGTH = 128
MASKED_POSITIONS = 20
MICRO_BATCH = 8
VOCABULARY = 30528
LEARNING_RATE = 1e-4
WEIGHT_DECAY = 0.01

# Trains a number of steps, and returns the seconds they took.
Trainer = Callable[[int], float]


@dataclass(frozen=True)
class Size:
    """Sizes of one BERT, and how many steps give a steady figure in reasonable time."""

    layers: int
    hidden: int
    heads: int
    steps: int


SIZES = {
    "tiny": Size(2, 128, 2, steps=60),
    "mini": Size(4, 256, 4, steps=30),
    "small": Size(4, 512, 8, steps=15),
    "base": Size(12, 768, 12, steps=6),
}
PUBLISHED_SIZES = ("mini", "small", "base")


@dataclass(frozen=True)
class Competitor:
    """A way to pre-train BERT.

    Attributes:
        module: in ``benchmarks.competitors``.
        title: in tables.
        package: what it needs beyond this project's requirements.
        without: the framework that transformers would load needlessly, which would count as time and memory.
    """

    module: str
    title: str
    package: str | None = None
    without: str | None = None


OURS = "ours"
GENERATED = "generated"
GEMM = "gemm"
TENSORFLOW_FIT = "hf-tensorflow-fit"
TENSORFLOW_FUNCTION = "hf-tensorflow-function"
PYTORCH = "hf-pytorch"
PYTORCH_TUNED = "hf-pytorch-tuned"
COMPETITORS = {
    OURS: Competitor("ours", "this project", without="TORCH"),
    TENSORFLOW_FIT: Competitor("hf_tensorflow_fit", "HF TensorFlow, `fit` as shipped", without="TORCH"),
    TENSORFLOW_FUNCTION: Competitor("hf_tensorflow_function", "HF TensorFlow, one `tf.function`", without="TORCH"),
    PYTORCH: Competitor("hf_pytorch", "HF PyTorch, eager", package="torch", without="TF"),
    PYTORCH_TUNED: Competitor("hf_pytorch_tuned", "HF PyTorch, tuned by hand", package="torch", without="TF"),
    GENERATED: Competitor("generated", "this project, `run_pretraining.py`", without="TORCH"),
    GEMM: Competitor("gemm", "matrix products alone"),
}


@dataclass(frozen=True)
class Job:
    """One measurement.

    Args:
        competitor: key of ``COMPETITORS``.
        size: key of ``SIZES``.
        warm_up: steps before the measured ones, at least 1.
        steps: measured steps.
        started: ``time.time()`` just before the process was started.
    """

    competitor: str
    size: str
    warm_up: int
    steps: int
    started: float = 0.0

    @property
    def architecture(self) -> Architecture:
        """The model that all competitors train: BERT as Hugging Face ships it, with all biases."""
        size = SIZES[self.size]
        return Architecture(
            vocab_size=VOCABULARY,
            hidden_size=size.hidden,
            num_hidden_layers=size.layers,
            num_attention_heads=size.heads,
            intermediate_size=4 * size.hidden,
            use_qkv_bias=True,
            use_qkv_split=True,
            use_projection_bias=True,
            use_cls_layer=True,
        )

    @property
    def flops_per_sample(self) -> int:
        """Model floating-point operations to train on one sample."""
        return model_flops_per_sample(self.architecture, PRETRAINING, SEQUENCE_LENGTH, MASKED_POSITIONS)

    def arguments(self) -> list[str]:
        """As command-line arguments of ``benchmarks.worker``."""
        return [
            self.competitor,
            f"--size={self.size}",
            f"--warm-up={self.warm_up}",
            f"--steps={self.steps}",
            f"--started={self.started!r}",
        ]

    @classmethod
    def parse(cls, arguments: list[str]) -> Job:
        """The inverse of ``arguments``."""
        parser = argparse.ArgumentParser(prog="python -m benchmarks.worker", description=__doc__)
        parser.add_argument("competitor", choices=COMPETITORS)
        parser.add_argument("--size", choices=SIZES, default="mini")
        parser.add_argument("--warm-up", type=int, default=3)
        parser.add_argument("--steps", type=int, default=10)
        parser.add_argument("--started", type=float, required=True)
        return cls(**vars(parser.parse_args(arguments)))
