"""Benchmarks that a ``benchmarks.yml`` describes, in the published form, and a runner for them."""
