"""Config, command line, planner and report."""
