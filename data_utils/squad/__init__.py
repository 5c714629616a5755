"""SQuAD 1.1 and 2.0: turns questions into windows of tokens, and a model's scores into answers and metrics."""
