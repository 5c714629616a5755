"""HTML pages of runs, each one file that loads nothing from elsewhere.

python -m utilities.report RUN_FOLDER
"""
