"""Pipelined execution, in which micro batches pass through stages on different devices."""
