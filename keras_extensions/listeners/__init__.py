"""Listeners to a run's logging periods: metrics, progress, checkpoints, trackers; and what reports periods and signals."""
