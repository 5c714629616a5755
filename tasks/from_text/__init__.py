"""Text and an hour: chooses a recipe for a text, a machine and a time, trains by it, and judges the result.

``inputs`` looks at text and machine, ``choice`` has the table of measured recipes and the rule between its rows,
``folder`` keeps what was decided and the time that was worked, ``steps`` prepares, times, trains and exports,
``judgement`` reads what came out, ``blanks`` fills blanks of held-out sentences, and ``command`` is the command line of
``run_from_text.py``.
"""
