"""The doctor says what is right and wrong with a data set, before days are spent on it.

``python -m data_utils.doctor FOLDER`` reads every record; ``--fix OTHER`` writes the good ones into a new data set.
"""
