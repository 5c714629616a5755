"""A search over settings with Optuna: ``python -m tasks.search``."""
