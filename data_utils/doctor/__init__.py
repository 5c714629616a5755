"""The doctor: what is right and wrong with a data set of pre-training records."""
