"""Number formats on stock TensorFlow, and ``fp_exceptions``: training stops at the first NaN or infinity.

The low-precision formats are float16 and bfloat16. Weights and computation have the format of :class:`Numerics`, but in
mixed precision weights are float32; moments, updates, norms and losses are always float32.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from execution.interface import Objective, Tensors
from keras_extensions.backend import tf
from utilities.environment import fast_bfloat16
from utilities.errors import UserError

FLOAT32, FLOAT16, BFLOAT16, MIXED = "float32", "float16", "bfloat16", "mixed_bfloat16"
LOW_PRECISION = (FLOAT16, BFLOAT16)  # formats whose weights have fewer bits than float32
_TENSOR_CORES = (7, 0)  # NVIDIA's first compute capability with tensor cores (Volta, 2017)
_AMPERE = (8, 0)  # and with fast bfloat16 (2020)


class Formats(NamedTuple):
    """Whether all GPUs are fast in float16, and what makes products of bfloat16 fast here; empty if nothing does."""

    tensor_cores: bool
    bfloat16: str


class Numerics(NamedTuple):
    """How a platform computes, and why, if the config leaves it open."""

    precision: str = FLOAT32
    reason: str = ""
    stochastic_rounding: bool = False
    fp_exceptions: bool = False

    @property
    def is_low_precision(self) -> bool:
        """Whether weights have fewer bits than float32."""
        return self.precision in LOW_PRECISION

    @property
    def is_mixed(self) -> bool:
        """Whether computation is in bfloat16, with float32 weights."""
        return self.precision == MIXED

    def describe(self) -> str:
        rounded = ", stochastic rounding" if self.is_low_precision and self.stochastic_rounding else ""
        return f"{self.precision}{rounded}{f' ({self.reason})' if self.reason else ''}"


def choose_numerics(
    precision: str, fast: Formats, stochastic_rounding: bool = False, fp_exceptions: bool = False
) -> Numerics:
    """Return the config's number format or, if that is ``auto``, the best one for the machine."""
    if precision != "auto":
        return Numerics(precision, "", stochastic_rounding, fp_exceptions)
    forced = "--execution.precision float32 forces float32"
    if fast.bfloat16:
        precision = MIXED
        reason = f"bfloat16 is fast here because of {fast.bfloat16}; {forced}"
    elif fast.tensor_cores:
        precision, reason = FLOAT16, f"as published, because of tensor cores; {forced}"
    else:
        precision = FLOAT32
        reason = "no fast float16 or bfloat16 here; --execution.precision float16 forces float16, as published"
    return Numerics(precision, f"precision auto: {reason}", stochastic_rounding, fp_exceptions)


def fast_formats(xla: bool) -> Formats:
    """Return which formats are fast here.

    The hardware's features decide, not its speed at the moment, so that a resumed run and all processes on equal
    machines make the same choice. XLA has no fast products of bfloat16 on CPUs.
    """
    gpus = tf.config.get_visible_devices("GPU")
    if not gpus:
        uses_onednn = os.environ.get("TF_ENABLE_ONEDNN_OPTS") != "0"  # TensorFlow's own products of bfloat16 are slow
        return Formats(False, fast_bfloat16() if uses_onednn and not xla else "")
    capability = min(tf.config.experimental.get_device_details(gpu).get("compute_capability") or (0, 0) for gpu in gpus)
    reason = f"compute capability {'.'.join(map(str, capability))}"
    return Formats(capability >= _TENSOR_CORES, reason if capability >= _AMPERE else "")


class WeightCopies:
    """The bfloat16 copies of float32 weights that mixed precision multiplies by, made once an update."""

    def __init__(self) -> None:
        self.variables: List[tf.Variable] = []
        self._copies: Dict[Any, tf.Tensor] = {}

    def cast(self, variable: tf.Variable, dtype: tf.DType) -> tf.Tensor:
        """Return a weight in ``dtype``: its copy within :meth:`using`, otherwise a new cast."""
        copy = self._copies.get(variable.ref())
        if copy is not None:
            return copy
        if not any(known is variable for known in self.variables):
            self.variables.append(variable)
        return tf.cast(variable, dtype)

    @contextlib.contextmanager
    def using(self, copies: Sequence[tf.Tensor]) -> Iterator[None]:
        """Within the block, use these copies of :attr:`variables`, or none if the sequence is empty."""
        self._copies = {variable.ref(): copy for variable, copy in zip(self.variables, copies)}
        try:
            yield
        finally:
            self._copies = {}


def as_float32(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, tf.float32)


# Floating-point exceptions

_PREFIX = "fp_exceptions, in "
_MESSAGE = re.compile(re.escape(_PREFIX) + r"(?P<source>.+?) : Tensor had (?P<values>.+?) values")


class FiniteCheck:
    """Checks that tensors are finite when they are computed, in the forward and the backward pass.

    Gradients must not be checked with an adaptive loss scale, which lets them overflow. ``model`` is left out of the
    layers' names.
    """

    def __init__(self, active: bool) -> None:
        self.active = active
        self.backward = True
        self.model = ""

    def __call__(self, x: tf.Tensor, name: str = "") -> tf.Tensor:
        """Return ``x``; a NaN or an infinity in it raises TensorFlow's ``InvalidArgumentError`` when it is computed."""
        if not self.active:
            return x
        return _checked(x, f"{_PREFIX}{name or self._layer()}", self.backward)

    def _layer(self) -> str:
        parts = [part for part in tf.get_current_name_scope().split("/") if part]
        return "/".join(parts[1:] if parts[:1] == [self.model] else parts) or "the model"


def _checked(x: tf.Tensor, message: str, backward: bool) -> tf.Tensor:
    @tf.custom_gradient
    def check(values: tf.Tensor) -> Tuple[tf.Tensor, Callable[[tf.Tensor], Any]]:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            return tf.debugging.check_numerics(upstream, f"{message}, gradient") if backward else upstream

        return tf.debugging.check_numerics(values, message), gradient

    return check(x)


class CheckedObjective:
    """An objective that checks its inputs and its sums; see :class:`execution.interface.Objective`."""

    def __init__(self, objective: Objective, check: FiniteCheck) -> None:
        self.losses: Tuple[str, ...] = objective.losses
        self.counts = objective.counts
        self._objective = objective
        self._check = check

    def sums(self, outputs: Tensors, batch: Tensors) -> Tensors:
        checked = {name: self._check(value, f"the model's output {name}") for name, value in outputs.items()}
        sums = self._objective.sums(checked, batch)
        return {name: self._check(value, name) for name, value in sums.items()}


@contextlib.contextmanager
def failed_checks_reported() -> Iterator[None]:
    """Within the block, report a failed :class:`FiniteCheck` to the user."""
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        match = _MESSAGE.search(str(error))
        if match is None:
            raise
        raise UserError(
            f"fp_exceptions: {match['source']} gave {match['values']}; lower"
            " optimizer_opts.learning_rate.max_learning_rate or optimizer_opts.loss_scaling, or set execution.precision"
            " to float32"
        ) from error
