"""Pipelined execution: micro batches pass through stages on different devices."""
