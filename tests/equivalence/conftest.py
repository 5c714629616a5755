"""Several logical devices on the one CPU, for the pipeline's tests; made before TensorFlow computes anything."""

from __future__ import annotations

import contextlib
import os

os.environ.setdefault("USE_TORCH", "AUTO")  # before the backend, which hides PyTorch: the learning curve needs both

from keras_extensions.backend import tf

LOGICAL_DEVICES = 4

with contextlib.suppress(RuntimeError):  # too late: the tests that need them skip, and say so
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * LOGICAL_DEVICES
    )
