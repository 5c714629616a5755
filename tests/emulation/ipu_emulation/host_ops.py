"""Those of the plugin's ops that run on the host, outside of programs; names and arguments are the plugin's."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from ipu_emulation.machine import Machine


class HostOps:
    def __init__(self, machine: Machine):
        self._machine = machine

    # The system

    def ipu_configure_hardware(self, config, name=None):
        self._machine.configure(config)
        return tf.no_op()

    def ipu_get_configuration(self, name=None):
        return tf.constant(self._machine.configuration(), tf.string)

    def ipu_get_num_devices(self, device, name=None):
        return tf.constant(self._machine.ipus)

    def ipu_reset_seed(self, device, seed, identical_replicas=False, name=None):
        return tf.no_op()

    def ipu_use_synthetic_data_for(self, synthetic_data_category, name=None):
        return tf.constant([False])

    def ipu_reset_devices(self, name=None):
        return tf.no_op()

    def ipu_clear_all_xla_compilation_caches(self, name=None):
        return tf.no_op()

    def device_sync(self, name=None):
        return tf.no_op()

    # Queues

    def ipu_create_dataset_iterator(self, input_dataset, feed_id, output_types, output_shapes, **options):
        self._machine.infeeds.open(feed_id, input_dataset, output_types, output_shapes)

    def ipu_delete_dataset_iterator(self, feed_id, **options):
        self._machine.infeeds.close(feed_id)

    def ipu_delete_outfeed(self, feed_id, **options):
        self._machine.outfeeds.close(feed_id)

    def pop_datastream_outfeed_dequeue(self, output_types, output_shapes, outfeed_mode, feed_id, **options):
        mode = outfeed_mode.decode() if isinstance(outfeed_mode, bytes) else outfeed_mode
        blank = 0 if self._machine.executes else 1
        return self._machine.outfeeds.take(feed_id, mode, output_types, output_shapes, blank)

    # Between instances

    def popdist_broadcast(self, value, tensor_name=None, name=None):
        if not hasattr(value, "numpy"):  # in a graph: the first value of a hyperparameter, a constant everywhere
            return value
        return tf.cast(self._all("broadcast", value)[0], value.dtype)

    def popdist_all_reduce(self, value, reduce_op=None, tensor_name=None, name=None):
        total = np.sum(self._all("all_reduce", value), axis=0)
        mean = str(reduce_op).endswith("MEAN")
        return tf.cast(total / self._instances if mean else total, value.dtype)

    def popdist_all_gather(self, value, tensor_name=None, name=None):
        return tf.stack(self._all("all_gather", value))

    @property
    def _instances(self):
        import popdist

        return popdist.getNumInstances()

    def _all(self, kind, value):
        """The arrays of all instances; counted."""
        self._machine.counts.add("host_collectives")
        return self._machine.exchange.all(kind, np.asarray(value))
