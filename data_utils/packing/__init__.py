"""Packing: several short sequences in one of full length, instead of padding."""
