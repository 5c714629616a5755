"""A command of earlier versions; it says what replaces it."""

import sys

REPLACED = (
    "is gone: `curl -C - -O URL` downloads a dump and resumes, and sha1sum checks it; see guides/preprocessing.md"
)

if __name__ == "__main__":
    print(f"error: data_utils.text.download {REPLACED}", file=sys.stderr)
    sys.exit(2)
