"""Number formats of weights and computation on stock TensorFlow, and the one rule that chooses among them."""

from __future__ import annotations

from typing import NamedTuple

from keras_extensions.backend import tf

FLOAT32, FLOAT16, BFLOAT16 = "float32", "float16", "bfloat16"
_TENSOR_CORES = (7, 0)  # NVIDIA's compute capability from which GPUs have them (Volta, 2017)


class Numerics(NamedTuple):
    """How a platform computes.

    Attributes:
        precision: number format of weights and computation. Moments, updates, norms, softmax and losses are float32.
        rule: why that one, where the config leaves it open.
        stochastic_rounding: round narrow weights at random after an update, so that small updates are not lost.
        fp_exceptions: stop at the first NaN or infinity.
    """

    precision: str = FLOAT32
    rule: str = ""
    stochastic_rounding: bool = False
    fp_exceptions: bool = False

    @property
    def is_narrow(self) -> bool:
        """Whether weights have fewer bits than float32."""
        return self.precision != FLOAT32

    def describe(self) -> str:
        """For the log: the format, and the rule that chose it."""
        rounded = ", weights rounded at random" if self.is_narrow and self.stochastic_rounding else ""
        return f"{self.precision}{rounded}{f' ({self.rule})' if self.rule else ''}"


def numerics(
    asked: str, tensor_cores: bool, stochastic_rounding: bool = False, fp_exceptions: bool = False
) -> Numerics:
    """The number format that the config asks for or, where that is ``auto``, the one that suits the machine.

    Args:
        asked: ``auto``, ``float32``, ``float16`` or ``bfloat16``.
        tensor_cores: whether the machine computes fast in float16.
    """
    if asked != "auto":
        return Numerics(asked, "", stochastic_rounding, fp_exceptions)
    if tensor_cores:
        rule = "precision auto: as published, for this GPU has tensor cores; --execution.precision float32 forces that"
        return Numerics(FLOAT16, rule, stochastic_rounding, fp_exceptions)
    rule = "precision auto: no fast float16 here; --execution.precision float16 forces it, as published"
    return Numerics(FLOAT32, rule, stochastic_rounding, fp_exceptions)


def has_tensor_cores() -> bool:
    """Whether every GPU that TensorFlow uses has tensor cores; False without a GPU."""
    gpus = tf.config.get_visible_devices("GPU")
    capabilities = [tf.config.experimental.get_device_details(gpu).get("compute_capability") for gpu in gpus]
    return bool(gpus) and all(capability is not None and capability >= _TENSOR_CORES for capability in capabilities)


def wide(x: tf.Tensor) -> tf.Tensor:
    """``x`` in float32."""
    return tf.cast(x, tf.float32)
