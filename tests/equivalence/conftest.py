"""Makes several logical devices on the CPU for the pipeline's tests, before TensorFlow computes anything; a folder."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from keras_extensions.backend import tf

LOGICAL_DEVICES = 4

with contextlib.suppress(RuntimeError):  # too late, as the fixture reports
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * LOGICAL_DEVICES
    )


@pytest.fixture(scope="session")
def logical_devices() -> None:
    """Fail if TensorFlow was started too early; skipped tests of pipelines would go unnoticed."""
    result = len(tf.config.list_logical_devices("CPU"))
    assert result == LOGICAL_DEVICES, "a module computed with TensorFlow when it was imported, before this conftest.py"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("root")
