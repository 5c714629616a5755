"""SQuAD 1.1: turns questions into windows of tokens, and a model's scores into answers and metrics."""
