"""What AdamW and LAMB share: Adam's moments, bias correction, decoupled decay, and who is excluded from it.

Both papers write the update of a weight matrix w with gradient g as

    m ← β₁ m + (1 - β₁) g            v ← β₂ v + (1 - β₂) g²
    d = m/(1 - β₁ᵗ) / (√(v/(1 - β₂ᵗ)) + ε) + λ w
    w ← w - η · r · d

with r = 1 in AdamW and r the layer's trust ratio in LAMB. Everything but r lives here.

All arithmetic is float32 and so are the moments, whatever the dtype of the variable: in float16 the second
moment of a typical gradient (1e-4)² underflows to zero.

Nothing here is specific to eager, graph or XLA execution. On a CPU the update of a large model is bound by
memory traffic, so calling ``apply_gradients`` inside one ``tf.function(jit_compile=True)`` is the cheapest:
XLA fuses it into one pass over weights and moments.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple, Union

from keras_extensions.backend import keras, tf
from optimization.gradients import dense_float32
from optimization.sharding import Parts, Shards, ShardStep, Underway
from optimization.stochastic_rounding import stochastic_round
from utilities.errors import UserError

LearningRate = Union[float, keras.optimizers.schedules.LearningRateSchedule]


def is_weight_matrix(variable: tf.Variable) -> bool:
    """Whether decay and layer adaptation apply to a variable.

    Biases and LayerNorm gains and offsets are excluded from both, as published for BERT. They are the
    variables of rank below 2: the role decides, not the name, so a renamed or converted layer keeps its
    treatment.
    """
    return variable.shape.rank >= 2


class DecoupledOptimizer(keras.optimizers.Optimizer):
    """Base of the optimizers with Adam moments and decoupled weight decay.

    Args:
        learning_rate: a float, or a ``LearningRateSchedule`` of the number of updates done so far.
        weight_decay_rate: λ; the decay of one update is learning rate × λ × w.
        beta_1: decay of the first moment, in [0, 1).
        beta_2: decay of the second moment, in [0, 1).
        epsilon: added to the root of the bias-corrected second moment.
        global_clipnorm: gradients are scaled so that their joint norm is at most this; None: no clipping.
        rounding_seed: round weights that are narrower than float32 stochastically, from this seed; None: to nearest.
        shards: keep the moments of a part of each variable only, the others' being with other processes; None: all.
        state_device: name of the device that holds the moments; None: each variable's own.
        name: name of the optimizer; None: that of its class.
        **kwargs: passed on to the Keras optimizer.

    Raises:
        UserError: a beta, epsilon or decay rate is out of range.
    """

    def __init__(
        self,
        learning_rate: LearningRate = 1e-3,
        weight_decay_rate: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        global_clipnorm: Optional[float] = None,
        rounding_seed: Optional[int] = None,
        shards: Optional[Shards] = None,
        state_device: Optional[str] = None,
        name: Optional[str] = None,
        **kwargs: Any,
    ) -> None:
        _check_range("beta_1", beta_1, 0.0, 1.0)
        _check_range("beta_2", beta_2, 0.0, 1.0)
        _check_range("epsilon", epsilon, 0.0, math.inf)
        _check_range("weight_decay_rate", weight_decay_rate, 0.0, math.inf)
        if global_clipnorm is not None and not global_clipnorm > 0:
            raise UserError(
                f"global_clipnorm (max_gradient_norm) is {global_clipnorm}; give a positive number, or none"
            )
        # Keras would decay before the gradient step and without exclusions by role.
        kwargs.pop("weight_decay", None)
        # Keras would compile the update of each variable on its own: hundreds of compilations, and no fusion.
        kwargs.setdefault("jit_compile", False)
        super().__init__(name=name or type(self).__name__, weight_decay=None, global_clipnorm=global_clipnorm, **kwargs)
        self._learning_rate = self._build_learning_rate(learning_rate)
        self.weight_decay_rate = weight_decay_rate
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.rounding_seed = rounding_seed
        self.shards = shards
        self.state_device = state_device
        self._underway = Underway()

    def build(self, var_list: Sequence[tf.Variable]) -> None:
        """Creates both moments of every variable, once; Keras calls it before the first update."""
        super().build(var_list)
        if getattr(self, "_built", False):
            return
        self._built = True
        self._underway.shapes = [variable.shape for variable in var_list]
        self._first_moments: List[tf.Variable] = [self.add_moment(variable, "m") for variable in var_list]
        self._second_moments: List[tf.Variable] = [self.add_moment(variable, "v") for variable in var_list]

    def add_moment(self, variable: tf.Variable, name: str) -> tf.Variable:
        """A float32 variable of zeros beside ``variable``, or where the state is to be; override to place it elsewhere.

        Of a sharded optimizer it is of the shape of a part, (n,).
        """
        shape = variable.shape if self.shards is None else [self.shards.length(variable)]
        stem = variable.name.split(":")[0]
        place = (
            tf.distribute.get_strategy().extended.colocate_vars_with(variable)
            if self.state_device is None
            else tf.device(self.state_device)
        )
        with place:
            return self.add_variable(shape, dtype=tf.float32, name=f"{name}/{stem}")

    def apply_gradients(
        self, grads_and_vars: Iterable[Tuple[Optional[tf.Tensor], tf.Variable]], *args: Any, **kwargs: Any
    ) -> tf.Variable:
        """One update.

        Args:
            grads_and_vars: pairs; a gradient may be of any floating dtype, dense or ``IndexedSlices``, and
                None leaves its variable as is.
            *args: passed on to the Keras optimizer, as are the keyword arguments.

        Returns:
            The counter of updates (int64 variable).
        """
        pairs = [
            (None if gradient is None else dense_float32(gradient), variable) for gradient, variable in grads_and_vars
        ]
        self._underway.begin()
        updates = super().apply_gradients(pairs, *args, **kwargs)
        if self.shards is not None:
            self._finish(self.shards, self._underway.steps)
        return updates

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable) -> None:
        """Updates one variable and its moments; ``gradient`` is float32 and of the variable's shape.

        Where state is sharded, this moves the part's moments on; all weights follow when all parts are known.
        """
        weights = tf.cast(variable, tf.float32)
        if self.shards is not None:
            weights, gradient = self.shards.own(weights), self.shards.own(gradient)
            self._underway.steps.append(ShardStep(variable, weights, self.direction(gradient, variable, weights)))
            return
        direction = self.direction(gradient, variable, weights)
        rate = self.learning_rate_float32() * self.trust_ratio(variable, weights, direction)
        variable.assign(self.round_weights(weights - rate * direction, variable))

    def direction(self, gradient: tf.Tensor, variable: tf.Variable, weights: tf.Tensor) -> tf.Tensor:
        """Moves the moments on by a gradient; returns d, with decay, all float32 and of the shape of the moments."""
        first, second = self.moments(variable)
        with tf.control_dependencies(
            self._underway.moved
        ):  # from elsewhere one after the other, so that few are on the way
            old_m, old_v = first.read_value(), second.read_value()
        with contextlib.nullcontext() if self.state_device is None else tf.device(variable.device):
            m = self.beta_1 * old_m + (1 - self.beta_1) * gradient
            v = self.beta_2 * old_v + (1 - self.beta_2) * tf.square(gradient)
            correction_1, correction_2 = self.bias_corrections()
            direction = (m / correction_1) / (tf.sqrt(v / correction_2) + self.epsilon)
            if self.uses_decay(variable):
                direction += self.weight_decay_rate * weights
        moved = [first.assign(m, read_value=False), second.assign(v, read_value=False)]
        if self.state_device is not None and not tf.executing_eagerly():
            self._underway.moved = moved
        return direction

    def _finish(self, shards: Shards, steps: Sequence[ShardStep]) -> None:
        """Updates all variables, each by the steps that the processes made of its parts."""
        adapted = [step for step in steps if self.uses_norms(step.variable)]
        norms = shards.norms([part for step in adapted for part in (step.weights, step.direction)])
        ratios = {
            step.variable.ref(): self.ratio_of_norms(*norms[2 * number : 2 * number + 2])
            for number, step in enumerate(adapted)
        }
        rate, parts = self.learning_rate_float32(), []
        for step in steps:
            new = step.weights - rate * ratios.get(step.variable.ref(), 1.0) * step.direction
            parts.append(self.round_weights(new, step.variable))
        for step, whole in zip(steps, shards.whole(parts, [step.variable.shape for step in steps])):
            step.variable.assign(whole)

    def uses_norms(self, variable: tf.Variable) -> bool:
        """Whether the learning rate of a variable depends on norms of its weights and direction."""
        return False

    def ratio_of_norms(self, weight_norm: tf.Tensor, direction_norm: tf.Tensor) -> tf.Tensor:
        """The factor r that these norms give."""
        raise NotImplementedError

    def trust_ratio(self, variable: tf.Variable, weights: tf.Tensor, direction: tf.Tensor) -> Union[float, tf.Tensor]:
        """Factor r of the layer's learning rate, a float32 scalar, from weights and direction in float32."""
        raise NotImplementedError

    def uses_decay(self, variable: tf.Variable) -> bool:
        """Whether the variable is decayed."""
        return self.weight_decay_rate > 0 and is_weight_matrix(variable)

    def round_weights(self, weights: tf.Tensor, variable: tf.Variable) -> tf.Tensor:
        """The new float32 weights in the variable's dtype: to nearest, or at random where that is asked for."""
        if self.rounding_seed is None or variable.dtype == tf.float32:
            return tf.cast(weights, variable.dtype)
        number = self._index_dict[self._var_key(variable)]
        part = 0 if self.shards is None else self.shards.index << 16
        own = (self.rounding_seed ^ number ^ part) & 0x7FFFFFFF
        seed = tf.stack([tf.cast(self.iterations, tf.int32), tf.constant(own, tf.int32)])
        return stochastic_round(weights, variable.dtype, seed)

    def moments(self, variable: tf.Variable) -> Tuple[tf.Variable, tf.Variable]:
        """First and second moment of a variable, float32, of the variable's shape."""
        index = self._index_dict[self._var_key(variable)]
        return self._first_moments[index], self._second_moments[index]

    def parts(self) -> Optional[Parts]:
        """Of what the moments are parts, for checkpoints; None where they are whole."""
        if self.shards is None:
            return None
        moments = [*self._first_moments, *self._second_moments]
        return Parts(self.shards, moments, self._underway.shapes * 2)

    def learning_rate_float32(self) -> tf.Tensor:
        """Learning rate of the present update."""
        return tf.cast(self.learning_rate, tf.float32)

    def bias_corrections(self) -> Tuple[tf.Tensor, tf.Tensor]:
        """1 - β₁ᵗ and 1 - β₂ᵗ at the present update t = 1, 2, … (float32 scalars)."""
        update = tf.cast(self.iterations + 1, tf.float32)
        return _one_minus_power(self.beta_1, update), _one_minus_power(self.beta_2, update)

    def get_config(self) -> Dict[str, Any]:
        """Constructor arguments, for saving; ``from_config`` takes them back."""
        config = super().get_config()
        del config["weight_decay"]
        config.update(
            learning_rate=self._serialize_hyperparameter(self._learning_rate),
            weight_decay_rate=self.weight_decay_rate,
            beta_1=self.beta_1,
            beta_2=self.beta_2,
            epsilon=self.epsilon,
            rounding_seed=self.rounding_seed,
        )
        return config


def _one_minus_power(beta: float, exponent: tf.Tensor) -> tf.Tensor:
    """1 - βᵗ without the cancellation that costs float32 four digits at β₂ = 0.999 and t = 1."""
    return -tf.math.expm1(exponent * math.log(beta)) if beta > 0 else tf.ones_like(exponent)


def _check_range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value < high:
        raise UserError(f"optimizer_opts.{name} is {value}; it must be at least {low:g} and below {high:g}")
