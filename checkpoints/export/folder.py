"""An exported model as a folder, written whole or not at all."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import List, NamedTuple, Optional

from safetensors.numpy import save_file

from checkpoints.export.arrays import exported_arrays
from checkpoints.export.card import model_card
from checkpoints.export.heads import Head
from checkpoints.export.settings import exported_config, facts_of, write_tokenizer
from checkpoints.pretrained.opening import open_pretrained
from utilities.errors import UserError

CHECKPOINT, OUTPUT = "--checkpoint", "--output"


class Outcome(NamedTuple):
    """What was written: Hugging Face's class, remarks for the user."""

    head: Head
    origin: str
    notes: List[str]


def export(
    checkpoint: str,
    output: Path,
    vocabulary: Optional[Path] = None,
    lower_case: Optional[bool] = None,
    encoder_only: bool = False,
) -> Outcome:
    """Write a checkpoint of any origin as a Hugging Face folder for PyTorch.

    Args:
        checkpoint: as :func:`checkpoints.pretrained.opening.open_pretrained` takes it, local.
        output: folder that is not there yet, or empty.
        vocabulary: ``vocab.txt``; None: the one that belongs to the checkpoint.
        lower_case: whether text is lower-cased; None: as the checkpoint says.
        encoder_only: leave out the heads.

    Raises:
        UserError: the checkpoint cannot be read or expressed, or the folder cannot be written.
    """
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UserError(f"{OUTPUT}: {output} exists and is not empty; name another folder")
    if vocabulary is not None and not vocabulary.is_file():
        raise UserError(f"--vocab-file: there is no file {vocabulary}; correct the path")
    start = open_pretrained(checkpoint, CHECKPOINT)
    vocabulary = vocabulary or start.vocabulary
    exported = exported_arrays(start, vocabulary, encoder_only, CHECKPOINT)
    config = exported_config(start, exported, CHECKPOINT)
    notes = list(exported.notes)
    if vocabulary is None:
        notes.append("The vocabulary is not known, so there are no tokenizer files.")
    temporary = output.parent / f".writing-{output.name}"
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        save_file(exported.arrays, str(temporary / "model.safetensors"), metadata={"format": "pt"})
        config.save_pretrained(str(temporary))
        known = write_tokenizer(start, temporary, vocabulary, lower_case, config.max_position_embeddings)
        card = model_card(output.name, start, exported.head, facts_of(config), notes, known)
        (temporary / "README.md").write_text(card, encoding="utf-8")
        if output.is_dir():
            output.rmdir()
        os.replace(temporary, output)
    except OSError as error:
        raise UserError(f"{OUTPUT}: cannot write {output} ({error.strerror or error}); name another folder") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return Outcome(exported.head, start.origin, notes)
