"""The optimizer that a config asks for."""

from __future__ import annotations

from keras_extensions.schedules import UpDown
from optimization.adamw import AdamW
from optimization.decoupled import DecoupledOptimizer
from optimization.lamb import LAMB
from utilities.config.figures import max_learning_rate
from utilities.config.schema import TrainingConfig

OPTIMIZERS = {"AdamW": AdamW, "LAMB": LAMB}


def make_optimizer(config: TrainingConfig, updates: int) -> DecoupledOptimizer:
    """LAMB or AdamW with the config's schedule over ``updates`` weight updates."""
    options = config.optimizer_opts
    schedule = UpDown(max_learning_rate(config), updates, options.learning_rate.warmup_frac)
    return OPTIMIZERS[options.name](
        learning_rate=schedule,
        weight_decay_rate=options.weight_decay_rate,
        beta_1=options.beta_1,
        beta_2=options.beta_2,
        epsilon=options.epsilon,
        global_clipnorm=options.max_gradient_norm,
    )
