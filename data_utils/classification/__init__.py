"""Benchmark tasks of classification: GLUE and CLUE, from their files to features, scores and submissions."""
