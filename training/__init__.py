"""The trainer that all tasks share."""
