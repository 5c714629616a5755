"""The optimizer that a config asks for."""

from __future__ import annotations

from keras_extensions.schedules import UpDown
from optimization.adamw import AdamW
from optimization.decoupled import DecoupledOptimizer
from optimization.lamb import LAMB
from utilities.config.figures import betas, max_learning_rate
from utilities.config.schema import TrainingConfig

OPTIMIZERS = {"AdamW": AdamW, "LAMB": LAMB}


def make_optimizer(config: TrainingConfig, updates: int, packing_factor: float = 1.0) -> DecoupledOptimizer:
    """LAMB or AdamW with the config's schedule over ``updates`` weight updates.

    Args:
        packing_factor: samples in a row of the batch on average.
    """
    options = config.optimizer_opts
    beta_1, beta_2 = betas(config, packing_factor)
    schedule = UpDown(max_learning_rate(config), updates, options.learning_rate.warmup_frac)
    return OPTIMIZERS[options.name](
        learning_rate=schedule,
        weight_decay_rate=options.weight_decay_rate,
        beta_1=beta_1,
        beta_2=beta_2,
        epsilon=options.epsilon,
        global_clipnorm=options.max_gradient_norm,
    )
