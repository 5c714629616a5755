"""Packing: plans, merging, and data sets of packs."""
