"""What measures a run's logging periods and signals, and the listeners: metrics, progress, checkpoints, trackers."""
