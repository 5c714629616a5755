"""Readers of checkpoint files, one module for each format; all give arrays by the names in the file."""
