"""Packing: several short sequences in one row of full length, instead of padding."""
