"""AdamW and LAMB; their common base class has Adam's moments and decoupled weight decay.

``optimization.steps`` has the formulas, whose symbols are used here. A variable on its device with unsharded moments is
updated by one of its functions; sharded or offloaded moments, and weights in float16, by the methods of the base class.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, Union

from keras_extensions.backend import keras, tf
from optimization.sharding import UNSHARDED, ShardedMoments, Shards
from optimization.steps import (
    Constants,
    Handles,
    adam_direction,
    adamw_step,
    dense_float32,
    is_weight_matrix,
    lamb_step,
    lamb_trust_ratio,
)
from optimization.stochastic_rounding import stochastic_round

LearningRate = Union[float, keras.optimizers.schedules.LearningRateSchedule]


class DecoupledOptimizer(keras.optimizers.Optimizer):
    """Base of the optimizers with Adam moments and decoupled weight decay.

    Args:
        weight_decay_rate: λ; one update decays a weight by learning rate × λ × w.
        published_decay: decay as Graphcore's program does, which decays more variables; see the subclasses.
        rounding_seed: seed of stochastic rounding of float16 and bfloat16 weights; None: round to nearest.
        shards: keep one shard of each variable's moments; None: keep all.
        state_device: name of the device of the moments; None: the device of each variable.

    Attributes:
        traced_step: updates a float32 variable with unsharded moments on its device; see ``optimization.steps``. It is
            traced once for all variables of a shape, which saves seconds at the start of a run.
    """

    traced_step: Callable[..., None]
    compiled_step: Callable[..., None]

    def __init__(
        self,
        learning_rate: LearningRate = 1e-3,
        weight_decay_rate: float = 0.01,
        published_decay: bool = False,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        global_clipnorm: Optional[float] = None,
        rounding_seed: Optional[int] = None,
        shards: Optional[Shards] = None,
        state_device: Optional[str] = None,
        name: Optional[str] = None,
    ) -> None:
        # Keras would decay before the gradient step, and all variables. It would also compile the update of each
        # variable on its own: hundreds of compilations, and no fusion.
        name = name or type(self).__name__
        super().__init__(name=name, weight_decay=None, jit_compile=False, global_clipnorm=global_clipnorm)
        self._learning_rate = self._build_learning_rate(learning_rate)
        self.weight_decay_rate = weight_decay_rate
        self.published_decay = published_decay
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.rounding_seed = rounding_seed
        self.shards = shards
        self.state_device = state_device
        self.compiles_steps = False
        self._current_update = _CurrentUpdate()

    def build(self, var_list: Sequence[tf.Variable]) -> None:
        """Create both moments of every variable, once; Keras calls this before the first update."""
        super().build(var_list)
        if getattr(self, "_built", False):
            return
        self._built = True
        self._current_update.variables = list(var_list)
        self._first_moments: List[tf.Variable] = [self.add_moment(variable, "m") for variable in var_list]
        self._second_moments: List[tf.Variable] = [self.add_moment(variable, "v") for variable in var_list]

    def moment_shape(self, variable: tf.Variable, name: str) -> tf.TensorShape:
        """Return the unsharded shape of a variable's first ("m") or second ("v") moment; (0,) if there is none."""
        return variable.shape

    def owner(self, variable: tf.Variable) -> Optional[int]:
        """Return the process that keeps the whole moments of a variable; None: each process keeps a shard of them."""
        return None

    def add_moment(self, variable: tf.Variable, name: str) -> tf.Variable:
        """Create this process' part of a float32 moment of zeros."""
        shape = self.moment_shape(variable, name)
        if self.shards is not None:
            shape = self.shards.part(shape, self.owner(variable))
        stem = variable.name.split(":")[0]
        device = (
            tf.distribute.get_strategy().extended.colocate_vars_with(variable)
            if self.state_device is None
            else tf.device(self.state_device)
        )
        with device:
            return self.add_variable(shape, dtype=tf.float32, name=f"{name}/{stem}")

    def apply_gradients(
        self, grads_and_vars: Iterable[Tuple[Optional[tf.Tensor], tf.Variable]], *args: Any, **kwargs: Any
    ) -> tf.Variable:
        """Make one update, given pairs of gradient and variable; a variable whose gradient is None stays unchanged."""
        pairs = [
            (gradient if gradient is None or self.compiles_steps else dense_float32(gradient), variable)
            for gradient, variable in grads_and_vars
        ]
        self._current_update.begin()
        updates = super().apply_gradients(pairs, *args, **kwargs)
        if self.shards is not None:
            self._apply_shards(self.shards)
        return updates

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable) -> None:
        """Update one variable and its moments.

        If the state is sharded, update the moments only: the weights follow when the directions of all variables are
        known, so that few large messages are exchanged.
        """
        if self.uses_step(variable):
            rate, updates = self._learning_rate_float32(), tf.identity(self.iterations)
            first, second = self.moments(variable)
            handles = Handles(variable.handle, first.handle, second.handle)
            step = self.compiled_step if self.compiles_steps else self.traced_step
            step(gradient, handles, rate, updates, self._constants(variable))
            return
        weights = tf.cast(variable, tf.float32)
        if self.shards is not None:
            weights, gradient = self.shards.own(weights), self.shards.own(gradient)
            self._current_update.steps.append((variable, weights, self._direction(gradient, variable, weights)))
            return
        variable.assign(self.updated_weights(gradient, variable, weights))

    def uses_step(self, variable: tf.Variable) -> bool:
        """Return whether ``traced_step`` or ``compiled_step`` can update the variable."""
        return variable.dtype == tf.float32 and self.shards is None and self.state_device is None

    def updated_weights(self, gradient: tf.Tensor, variable: tf.Variable, weights: tf.Tensor) -> tf.Tensor:
        """Update the moments; return the new weights in the variable's dtype, given the float32 weights."""
        direction = self._direction(gradient, variable, weights)
        ratio = self.trust_ratio(tf.norm(weights), tf.norm(direction)) if self.uses_norms(variable) else 1.0
        rate = self._learning_rate_float32() * ratio
        return self._round(weights - rate * direction, variable)

    def uses_norms(self, variable: tf.Variable) -> bool:
        """Return whether the variable's learning rate is multiplied by a trust ratio."""
        return False

    def trust_ratio(self, weight_norm: tf.Tensor, direction_norm: tf.Tensor) -> tf.Tensor:
        """Return r, given the Euclidean norms of w and d; all are float32 scalars."""
        raise NotImplementedError

    def _direction(self, gradient: tf.Tensor, variable: tf.Variable, weights: tf.Tensor) -> tf.Tensor:
        """Update the moments; return d, which includes the decay, in float32 and the shape of the moments."""
        first, second = self.moments(variable)
        # Moments on another device are copied one variable after the other, so that few copies exist at a time.
        with tf.control_dependencies(self._current_update.last_moments):
            old_m, old_v = first.read_value(), second.read_value()
        with contextlib.nullcontext() if self.state_device is None else tf.device(variable.device):
            direction, m, v = self.undecayed_direction(gradient, variable, old_m, old_v)
            if self._uses_decay(variable):
                direction += self.decay() * weights
        stored = [first.assign(m, read_value=False), second.assign(v, read_value=False)]
        if self.state_device is not None and not tf.executing_eagerly():
            self._current_update.last_moments = stored
        return direction

    def undecayed_direction(
        self, gradient: tf.Tensor, variable: tf.Variable, m: tf.Tensor, v: tf.Tensor
    ) -> Tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return d without the decay, and both moments after this update, given those before; all are float32."""
        return adam_direction(gradient, m, v, self.iterations, self._constants(variable))

    def _apply_shards(self, shards: Shards) -> None:
        """Update all variables from the shards of all processes."""
        steps = self._current_update.steps
        adapted = [step for step in steps if self.uses_norms(step[0])]
        norms = shards.norms([shard for _, weights, direction in adapted for shard in (weights, direction)])
        ratios = {
            variable.ref(): self.trust_ratio(*norms[2 * number : 2 * number + 2])
            for number, (variable, _, _) in enumerate(adapted)
        }
        rate, parts = self._learning_rate_float32(), []
        for variable, weights, direction in steps:
            new = weights - rate * ratios.get(variable.ref(), 1.0) * direction
            parts.append(self._round(new, variable))
        variables = [step[0] for step in steps]
        for variable, whole in zip(variables, shards.whole(parts, [variable.shape for variable in variables])):
            variable.assign(whole)

    def decay(self) -> Union[float, tf.Tensor]:
        """Return the factor of the weights in d."""
        return self.weight_decay_rate

    def _constants(self, variable: tf.Variable) -> Constants:
        decay = self.weight_decay_rate if self._uses_decay(variable) else 0.0
        return Constants(decay, self.beta_1, self.beta_2, self.epsilon, self.published_decay)

    def _uses_decay(self, variable: tf.Variable) -> bool:
        return self.weight_decay_rate > 0 and (
            is_weight_matrix(variable) or (self.published_decay and self.decays_vector(variable))
        )

    def decays_vector(self, variable: tf.Variable) -> bool:
        """Return whether published decay includes a variable of rank below 2."""
        raise NotImplementedError

    def _round(self, weights: tf.Tensor, variable: tf.Variable) -> tf.Tensor:
        """Cast new float32 weights to the variable's dtype, with stochastic rounding if a seed is set."""
        if self.rounding_seed is None or variable.dtype == tf.float32:
            return tf.cast(weights, variable.dtype)
        number = self._index_dict[self._var_key(variable)]
        part = 0 if self.shards is None else self.shards.index << 16
        own = (self.rounding_seed ^ number ^ part) & 0x7FFFFFFF
        seed = tf.stack([tf.cast(self.iterations, tf.int32), tf.constant(own, tf.int32)])
        return stochastic_round(weights, variable.dtype, seed)

    def compile_steps(self) -> bool:
        """Compile the update of a weight with XLA, once for all weights of a shape; return False if that is impossible.

        Compiling the update of all weights at once takes more time, and memory that the process keeps.
        """
        self.compiles_steps = self.global_clipnorm is None
        return self.compiles_steps

    def moments(self, variable: tf.Variable) -> Tuple[tf.Variable, tf.Variable]:
        """Return this process' parts of the first and second moment of a variable, in float32."""
        index = self._index_dict[self._var_key(variable)]
        return self._first_moments[index], self._second_moments[index]

    def sharded_moments(self) -> ShardedMoments:
        if self.shards is None:
            return UNSHARDED
        parts = [
            (moment, self.moment_shape(variable, name), self.owner(variable))
            for variable in self._current_update.variables
            for name, moment in zip("mv", self.moments(variable))
        ]
        return ShardedMoments(self.shards, [part for part in parts if part[1].num_elements() > 0])

    def _learning_rate_float32(self) -> tf.Tensor:
        return tf.cast(self.learning_rate, tf.float32)


class AdamW(DecoupledOptimizer):
    """Adam with decoupled weight decay, Algorithm 2 of Loshchilov & Hutter 2019 (arXiv 1711.05101).

    As in ``torch.optim.AdamW``, decay is scaled by the learning rate and ε is added to the root of the bias-corrected
    second moment. Variables of rank below 2 (biases, LayerNorm gains) are not decayed. Published decay takes λ × w from
    every variable in each update, whatever the learning rate, before the gradient's part.
    """

    # One function for all optimizers: TensorFlow keeps what XLA has compiled until the process ends, so a run of
    # several seeds would otherwise grow with each of them. Its arguments are handles, so that weights of one shape
    # share the code: variables that Keras wraps in mixed precision would each be traced again.
    traced_step = staticmethod(tf.function(adamw_step, autograph=False))
    compiled_step = staticmethod(tf.function(adamw_step, jit_compile=True, autograph=False))

    def decay(self) -> Union[float, tf.Tensor]:
        if not self.published_decay:
            return super().decay()
        return tf.math.divide_no_nan(self.weight_decay_rate, self._learning_rate_float32())

    def decays_vector(self, variable: tf.Variable) -> bool:
        return True


class LAMB(DecoupledOptimizer):
    """Layer-wise adaptive moments for large batches, Algorithm 2 of You et al. 2020 (arXiv 1904.00962).

    With bias correction. The trust ratio of a weight matrix is ‖w‖ / ‖d‖, d being Adam's direction plus decay, or 1 if
    either norm is 0. Variables of rank below 2 (biases, LayerNorm gains) are neither decayed nor adapted; published
    decay includes the gains.
    """

    traced_step = staticmethod(tf.function(lamb_step, autograph=False))
    compiled_step = staticmethod(tf.function(lamb_step, jit_compile=True, autograph=False))

    def uses_norms(self, variable: tf.Variable) -> bool:
        return is_weight_matrix(variable)

    def trust_ratio(self, weight_norm: tf.Tensor, direction_norm: tf.Tensor) -> tf.Tensor:
        return lamb_trust_ratio(weight_norm, direction_norm)

    def decays_vector(self, variable: tf.Variable) -> bool:
        return variable.name.split(":")[0].endswith("gamma")


class _CurrentUpdate:
    """Values that an optimizer must not save, as Keras would if these lists were attributes of the optimizer.

    ``variables`` are those with which the optimizer was built, ``last_moments`` the operations that stored the previous
    one's. With sharded state, ``steps`` are variable, own shard of its weights and of d, both (n,) float32, and
    ``owned`` the new weights of the variables that this process owns.
    """

    def __init__(self) -> None:
        self.variables: List[tf.Variable] = []
        self.begin()

    def begin(self) -> None:
        self.steps: List[Tuple[tf.Variable, tf.Tensor, tf.Tensor]] = []
        self.owned: Dict[Any, tf.Tensor] = {}
        self.last_moments: List[Any] = []
