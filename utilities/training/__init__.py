"""The trainer that all tasks share, and the tasks."""
