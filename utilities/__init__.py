"""Config, command line, checkpoints, report and the trainer."""
