"""What measures a run's logging periods and its signals, and the listeners: metrics, progress, checkpoints, trackers."""
