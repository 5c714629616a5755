"""Modules that all other packages may import: errors, files, tables, history, environment, secrets, commands."""
