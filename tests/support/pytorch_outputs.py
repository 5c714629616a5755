"""Computes what exported models return, as a user of PyTorch does, in a separate process.

    python -m tests.support.pytorch_outputs DATA.npz FOLDER …

Each FOLDER is loaded by the class that its config names; its outputs go to FOLDER.npz.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
import transformers


def main(data: Path, folders: list[Path]) -> None:
    inputs = {name: torch.from_numpy(values).long() for name, values in np.load(data).items()}
    for folder in folders:
        name = transformers.BertConfig.from_pretrained(folder).architectures[0]
        model = getattr(transformers, name).from_pretrained(folder).eval()
        with torch.no_grad():
            outputs = model(**inputs)
        np.savez(folder.with_name(f"{folder.name}.npz"), **{name: value.numpy() for name, value in outputs.items()})


if __name__ == "__main__":
    path, *others = map(Path, sys.argv[1:])
    main(path, others)
