"""The platform of stock TensorFlow with pipeline stages on several devices."""

from __future__ import annotations

import functools
from typing import Any, Callable, ContextManager, List, Optional, Sequence, Tuple

from execution.interface import ExecutionOptions
from execution.software.platform import SoftwarePlatform
from execution.software.trainable_model import Engine
from execution.software.training_step import UpdateRule
from keras_extensions.backend import keras, tf
from pipeline.engine import PipelineEngine
from pipeline.schedule import make_schedule
from utilities.errors import UserError


class PipelinePlatform(SoftwarePlatform):
    """A platform whose stages pass micro batches on; ``devices`` are the names of their devices."""

    pipelined = True

    def __init__(self, devices: Sequence[str], schedule: str = "grouped", **options: Any):
        super().__init__(**options)
        self._devices = devices
        self._schedule = schedule

    def describe(self) -> str:
        return f"{super().describe()}; {self._schedule} pipeline, stages on {', '.join(self._devices)}"

    def stage(self, number: int) -> ContextManager[Any]:
        return tf.device(self._devices[number])

    def _engine(self, model: keras.Model, rule: UpdateRule) -> Engine:
        schedule = make_schedule(self._schedule, len(model.stages))
        return PipelineEngine(model, self._devices, schedule, rule, self._dropout_seeds, self._seed, self._xla)


def spread(options: ExecutionOptions) -> Tuple[Callable[..., SoftwarePlatform], int]:
    """Return what makes the platform, and the number of devices, on which IPU ``k`` becomes ``k`` modulo their number.

    On a single device, stages in sequence are fastest.
    """
    devices = pipeline_devices(options.pipeline_devices)
    stages = [devices[ipu % len(devices)] for ipu in options.device_mapping]
    if len(set(stages)) < 2:
        return SoftwarePlatform, len(devices)
    return functools.partial(PipelinePlatform, stages, options.pipeline_schedule), len(devices)


def pipeline_devices(count: Optional[int]) -> List[str]:
    """Return the names of the devices over which pipeline stages are spread.

    None: all GPUs, or the one CPU. A CPU is divided into ``count`` logical devices, which share its cores and memory.
    """
    gpus = tf.config.get_visible_devices("GPU")
    if gpus:
        if count is not None and count > len(gpus):
            raise UserError(f"execution.pipeline_devices is {count}, but there are {len(gpus)} GPUs; set it to that")
        return [f"/GPU:{number}" for number in range(count or len(gpus))]
    if count is not None and count > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        if tf.config.get_logical_device_configuration(cpu) is None:
            parts = [tf.config.LogicalDeviceConfiguration() for _ in range(count)]
            tf.config.set_logical_device_configuration(cpu, parts)
    return [f"/CPU:{number}" for number in range(count or 1)]
