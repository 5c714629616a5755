"""The doctor: what is right and wrong with a data set, told before days are spent on it.

``python -m data_utils.doctor FOLDER`` reads every record and judges; ``--fix OTHER`` writes the good ones anew.
"""
