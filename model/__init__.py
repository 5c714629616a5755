"""BERT: its blocks, layers, task models, heads and losses."""
