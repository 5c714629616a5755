"""Writes HTML pages about runs; each page is one file that loads nothing else.

python -m reports RUN_FOLDER
"""
