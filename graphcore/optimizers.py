"""Mixins that extend Graphcore's optimizers.

Keras 2.6's optimizers call ``_prepare_local`` once for the values that all weights share, then
``_resource_apply_dense`` for each weight.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

from execution.interface import OptimizerSettings
from keras_extensions.backend import tf

_KerasOptimizer: Any = object  # represents the optimizer class that a mixin is combined with

# Patterns of weights' names, as published for LAMB on IPUs: LayerNorm's gains decay, but no other vector does.
NOT_DECAYED = (r"(^|/)(bias|beta)$",)
NOT_ADAPTED = (r"(^|/)(bias|beta|gamma)$",)


class FullPrecision(_KerasOptimizer):
    """Unscales gradients and computes the learning rate in float32, whatever the dtype of the weights.

    Attributes:
        divisor: loss scale × replicas, because gradients are summed over replicas.
        report_rate: called with the learning rate of each update.
    """

    divisor = 1.0
    report_rate: Optional[Callable[[tf.Tensor], Any]] = None

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        if self.report_rate is not None:
            self.report_rate(self.rate())
        return super().apply_gradients(grads_and_vars, *args, **kwargs)

    def rate(self) -> tf.Tensor:
        """Return the learning rate of this update; Keras would count updates in the weights' dtype, perhaps float16."""
        return self.learning_rate(tf.cast(self.iterations, tf.float32))

    def _prepare_local(self, var_device: str, var_dtype: tf.DType, apply_state: Dict[Any, Any]) -> None:
        super()._prepare_local(var_device, var_dtype, apply_state)
        apply_state[(var_device, var_dtype)]["lr_t"] = self.rate()

    def _resource_apply_dense(self, grad: tf.Tensor, handle: tf.Variable, apply_state: Any = None) -> Any:
        return super()._resource_apply_dense(tf.cast(grad, tf.float32) / self.divisor, handle, apply_state)


class DecoupledDecay(FullPrecision):
    """Adds decoupled weight decay: matrices decay by learning rate × λ × w (Loshchilov & Hutter 2019).

    Published decay is λ × w of all variables, in their format, as tensorflow-addons has it.
    """

    def __init__(self, weight_decay_rate: float, published_decay: bool, **kwargs: Any):
        super().__init__(**kwargs)
        self._weight_decay_rate = weight_decay_rate
        self._is_published = published_decay

    def _resource_apply_dense(self, grad: tf.Tensor, handle: tf.Variable, apply_state: Any = None) -> Any:
        if not self._weight_decay_rate or (handle.shape.rank < 2 and not self._is_published):
            return super()._resource_apply_dense(grad, handle, apply_state)
        if self._is_published:
            decay = handle * tf.cast(self._weight_decay_rate, handle.dtype)
        else:
            decay = tf.cast(handle, tf.float32) * (self.rate() * self._weight_decay_rate)
        with tf.control_dependencies([handle.assign_sub(tf.cast(decay, handle.dtype))]):
            return super()._resource_apply_dense(grad, handle, apply_state)


def constants(settings: OptimizerSettings) -> Dict[str, Any]:
    """Return the arguments that Graphcore's optimizers share; the rules of the config refuse what these lack."""
    assert settings.name != "Muon" and settings.max_gradient_norm is None, settings
    return {
        "learning_rate": settings.learning_rate,
        "beta_1": settings.beta_1,
        "beta_2": settings.beta_2,
        "epsilon": settings.epsilon,
        "weight_decay_rate": settings.weight_decay_rate,
        "m_dtype": tf.float32,
        "v_dtype": tf.float32,
    }
