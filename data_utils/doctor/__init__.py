"""The doctor: checks a data set of pre-training records and reports what is wrong with it."""
