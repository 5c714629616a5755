"""Makes pre-training TFRecords from a Wikipedia dump or any other text.

Steps, each usable alone (``python -m data_utils.text.STEP --help``): ``sentences`` → ``vocabulary`` → ``examples``.
All of them in one command: ``python -m data_utils.text --dump FILE --output FOLDER``.
"""
