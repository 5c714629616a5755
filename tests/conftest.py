"""Settings of all tests."""

from __future__ import annotations

import os

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")  # for CPUs; with 0, TensorFlow's tests run on a GPU instead
