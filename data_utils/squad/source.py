"""Where questions come from: files of SQuAD's form, or the ``datasets`` library."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Optional

from data_utils.hub import hub_split
from data_utils.squad.examples import SquadSet, parse_squad, read_squad

TRAIN, VALIDATION = "train", "validation"


def open_squad(folder: Optional[str], file_name: str, hub_name: str, split: str) -> SquadSet:
    """A data set from a file, or where no folder is given from the ``datasets`` library.

    Args:
        folder: where the file lies; None for the library.
        file_name: in the folder, or a whole path.
        hub_name: the library's name of the data set, or a folder that it understands.
        split: the library's name of the part.

    Raises:
        UserError: there is no such data, or it is malformed.
    """
    if folder is not None:
        return read_squad(Path(folder) / file_name)
    document = document_of(hub_split(hub_name, None, split, f"a folder with {file_name}"))
    content = json.dumps(document).encode()
    return parse_squad(document, f"{hub_name} ({split})", hashlib.sha256(content).hexdigest())


def document_of(rows: Iterable[Mapping[str, Any]]) -> Dict[str, Any]:
    """What a file of SQuAD's form would hold, from the library's rows: one a question, a paragraph's together."""
    articles: List[Dict[str, Any]] = []
    for row in rows:
        title, context = row.get("title") or "untitled", row.get("context")
        if not articles or articles[-1]["title"] != title:
            articles.append({"title": title, "paragraphs": []})
        paragraphs = articles[-1]["paragraphs"]
        if not paragraphs or paragraphs[-1]["context"] != context:
            paragraphs.append({"context": context, "qas": []})
        answers = row.get("answers") or {}
        marked = zip(answers.get("text", ()), answers.get("answer_start", ()))
        paragraphs[-1]["qas"].append(
            {
                "id": row.get("id"),
                "question": row.get("question"),
                "answers": [{"text": text, "answer_start": start} for text, start in marked],
            }
        )
    return {"data": articles}
