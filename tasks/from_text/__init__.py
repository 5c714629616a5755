"""Text and an hour: chooses a recipe for a text, a machine and a time, trains by it, and judges the result.

``inputs`` looks at text and machine, ``table`` has the measured recipes and the rule between them, ``choice`` makes a
``recipe`` of them and ``reasons`` says why, ``folder`` keeps what was decided and the time that was worked, ``phases``
are the configs of the trainings, ``pace`` times them, ``steps`` prepares, trains and exports, ``judgement`` reads what
came out, ``blanks`` fills blanks of held-out sentences, ``purpose`` says which steps a use of the model has, and
``command`` is the command line of ``run_from_text.py``.
"""
