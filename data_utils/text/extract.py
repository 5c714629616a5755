"""A command of earlier versions; it says what replaces it."""

import sys

REPLACED = (
    "is gone: python -m data_utils.text reads a dump itself, and `python -m wikiextractor.WikiExtractor --json DUMP`"
    " writes its prose as JSON Lines"
)

if __name__ == "__main__":
    print(f"error: data_utils.text.extract {REPLACED}", file=sys.stderr)
    sys.exit(2)
