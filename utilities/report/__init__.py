"""The HTML report of a run: one file, nothing loaded from elsewhere.

python -m utilities.report RUN_FOLDER
"""
