"""SQuAD 1.1: questions to windows of tokens, and a model's scores back to answers and their marks."""
