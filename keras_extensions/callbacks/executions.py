"""Metrics that belong to one execution."""

from __future__ import annotations

from typing import Any, Dict, Optional

from keras_extensions.backend import keras


class PerExecutionMetrics(keras.callbacks.Callback):
    """Makes the metrics in Keras' logs averages over one execution, where Keras averages since the epoch began."""

    def on_train_batch_begin(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Keras: an execution begins."""
        self.model.reset_metrics()
