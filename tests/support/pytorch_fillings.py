"""Fills blanks by Transformers' ``fill-mask`` pipeline in PyTorch, in a separate process.

    python -m tests.support.pytorch_fillings FOLDER TEXTS TOP

prints the pieces and probabilities for each blank of TEXTS, a JSON list.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.support.pytorch_process import run_pytorch


def pytorch_fillings(folder: Path, texts: list[str], top: int) -> list[list[tuple[str, float]]]:
    output = run_pytorch(__name__, folder, json.dumps(texts), top)
    return [[(piece, share) for piece, share in fillings] for fillings in json.loads(output.splitlines()[-1])]


def main(folder: str, texts: str, top: str) -> None:
    from transformers import pipeline

    fill = pipeline("fill-mask", model=folder, tokenizer=folder, top_k=int(top))
    printed = []
    for text in json.loads(texts):
        blanks = fill(text)
        blanks = blanks if isinstance(blanks[0], list) else [blanks]
        piece = fill.tokenizer.convert_ids_to_tokens
        printed.append([(piece(found["token"]), found["score"]) for each in blanks for found in each])
    print(json.dumps(printed))


if __name__ == "__main__":
    main(*sys.argv[1:])
