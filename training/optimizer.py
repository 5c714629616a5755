"""The optimizer that a config asks for."""

from __future__ import annotations

from execution.interface import OptimizerSettings
from keras_extensions.schedules import UpDown
from utilities.config.figures import betas, max_learning_rate
from utilities.config.schema import TrainingConfig


def optimizer_settings(config: TrainingConfig, updates: int, packing_factor: float = 1.0) -> OptimizerSettings:
    """LAMB or AdamW with the config's schedule over ``updates`` weight updates.

    Args:
        packing_factor: samples in a row of the batch on average.
    """
    options = config.optimizer_opts
    beta_1, beta_2 = betas(config, packing_factor)
    return OptimizerSettings(
        name=options.name,
        learning_rate=UpDown(max_learning_rate(config), updates, options.learning_rate.warmup_frac),
        weight_decay_rate=options.weight_decay_rate,
        beta_1=beta_1,
        beta_2=beta_2,
        epsilon=options.epsilon,
        max_gradient_norm=options.max_gradient_norm,
    )
