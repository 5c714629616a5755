"""Pipelined execution: stages on devices of their own, with micro batches flowing through."""
