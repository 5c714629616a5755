"""Settings of all unit tests."""

import os

# Tests run steps of several replicas as threads of one process, in graphs that wait for each other. On one core
# TensorFlow would have one thread for operations, which the first graph would keep.
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "2")
