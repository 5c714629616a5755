"""Muon for the matrices between hidden states, and AdamW for all other variables, in one optimizer.

Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon) orthogonalizes the momentum of a matrix by a Newton–Schulz
iteration, which brings all its singular values near 1. The update of a matrix w (rows × columns) with gradient g is

    m ← μ m + (1 - μ) g             x = μ m + (1 - μ) g
    d = s · orthogonalized(x) + λ w
    w ← w - η · d

With s = 0.2 · √max(rows, columns), the scale of Liu et al. 2025 (arXiv 2502.16982), d has the root mean square of an
AdamW update, so that AdamW's learning rate and decay serve both. A constant s gives the updates of all matrices one
spectral norm, which is the largest Euclidean norm by which the product with a vector of norm 1 changes.

Each matrix is multiplied by TensorFlow's operations, outside of XLA. On a CPU that was measured to be faster than
stacks of matrices of one shape, and than products of XLA.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

from keras_extensions.backend import tf
from optimization.optimizers import AdamW
from optimization.sharding import Shards
from optimization.steps import dense_float32

MOMENTUM = 0.95  # μ
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5
EPSILON = 1e-7  # smallest norm to divide by
RMS = 0.2  # of an update at learning rate 1, before decay, if no scale is given


@tf.function(autograph=False)  # traced once for all matrices of a shape
def orthogonalized(x: tf.Tensor, dtype: tf.DType = tf.float32) -> tf.Tensor:
    """Return a matrix with the singular vectors of ``x`` and singular values between about 0.7 and 1.2.

    They are (rows, columns), float32; ``dtype`` is the format of the products.
    """
    a, b, c = COEFFICIENTS  # applied in float32: in bfloat16 they would be 3.4375, -4.7812 and 2.0312
    tall = x.shape[0] > x.shape[1]
    x = tf.cast(x / tf.maximum(tf.norm(x), EPSILON), dtype)
    for _ in range(ITERATIONS):
        gram = tf.matmul(x, x, transpose_a=tall, transpose_b=not tall)  # (n, n), n the smaller side
        factor = tf.cast(b * _float32(gram) + c * _float32(tf.matmul(gram, gram)), dtype)
        product = tf.matmul(x, factor) if tall else tf.matmul(factor, x)
        x = tf.cast(a * _float32(x) + _float32(product), dtype)
    return _float32(x)


def _float32(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, tf.float32)


class Muon(AdamW):
    """Muon for some matrices, AdamW for all other variables.

    Args:
        matrices: pairs of a matrix and the number of equal parts of its columns that are matrices of their own, such as
            3 for the queries, keys and values of one product.
        scale: s; None: 0.2 · √max(rows, columns).
    """

    def __init__(
        self,
        *args: Any,
        matrices: Sequence[Tuple[tf.Variable, int]] = (),
        scale: Optional[float] = None,
        product_dtype: str = "float32",
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.scale = scale
        self.product_dtype = product_dtype
        self._matrices = _Matrices({variable.ref(): parts for variable, parts in matrices})

    def build(self, var_list: Sequence[tf.Variable]) -> None:
        if self.shards is not None and not self._matrices.rounds:
            rounds = self.shards.rounds([variable for variable in var_list if self.is_orthogonalized(variable)])
            self._matrices.rounds = rounds
            self._matrices.owners = {matrix.ref(): process for each in rounds for process, matrix in enumerate(each)}
        super().build(var_list)

    def is_orthogonalized(self, variable: tf.Variable) -> bool:
        return variable.ref() in self._matrices.counts

    def uses_step(self, variable: tf.Variable) -> bool:
        return not self.is_orthogonalized(variable) and super().uses_step(variable)

    def moment_shape(self, variable: tf.Variable, name: str) -> tf.TensorShape:
        """Return the unsharded shape of a moment; Muon's matrices have no second one."""
        return tf.TensorShape([0]) if name == "v" and self.is_orthogonalized(variable) else variable.shape

    def owner(self, variable: tf.Variable) -> Optional[int]:
        return self._matrices.owners.get(variable.ref())

    def undecayed_direction(
        self, gradient: tf.Tensor, variable: tf.Variable, m: tf.Tensor, v: tf.Tensor
    ) -> Tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        if not self.is_orthogonalized(variable):
            return super().undecayed_direction(gradient, variable, m, v)
        gradient = dense_float32(gradient)
        m = MOMENTUM * m + (1 - MOMENTUM) * gradient
        x = MOMENTUM * m + (1 - MOMENTUM) * gradient
        parts = tf.split(x, self._matrices.counts[variable.ref()], axis=1)
        scale = RMS * max(parts[0].shape) ** 0.5 if self.scale is None else self.scale
        dtype = tf.as_dtype(self.product_dtype)
        return scale * tf.concat([orthogonalized(part, dtype) for part in parts], axis=1), m, v

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable) -> None:
        """Update one variable; of sharded matrices, only compute those that this process owns."""
        owner = self.owner(variable)
        if owner is None:
            super().update_step(gradient, variable)
        elif self.shards is not None and owner == self.shards.index:
            weights = tf.cast(variable, tf.float32)
            self._current_update.owned[variable.ref()] = self.updated_weights(gradient, variable, weights)

    def _apply_shards(self, shards: Shards) -> None:
        """Update all variables from the shards of all processes, and the matrices from their owners."""
        super()._apply_shards(shards)
        rounds, owned = self._matrices.rounds, self._current_update.owned
        # A process that owns no matrix of a round sends an unchanged one, which is not read.
        own = [matrices[min(shards.index, len(matrices) - 1)] for matrices in rounds]
        parts = [tf.reshape(owned.get(matrix.ref(), matrix), [-1]) for matrix in own]
        shapes = [tf.TensorShape([shards.count, *matrix.shape]) for matrix in own]
        for matrices, values in zip(rounds, shards.whole(parts, shapes)):
            for number, matrix in enumerate(matrices):
                matrix.assign(values[number])


class _Matrices:
    """Muon's matrices, in an object whose attributes Keras does not save.

    With sharded state, ``rounds`` are the matrices that the processes own, and ``owners`` these processes.
    """

    def __init__(self, counts: Dict[Any, int]) -> None:
        self.counts = counts
        self.rounds: List[List[tf.Variable]] = []
        self.owners: Dict[Any, int] = {}
