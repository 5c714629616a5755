"""Keras machinery that knows no BERT."""
