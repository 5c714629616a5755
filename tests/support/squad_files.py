"""Small data sets in SQuAD's format, with a vocabulary and a tokenizer."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any

from data_utils.squad.examples import SquadSet, parse_squad
from data_utils.tokenizer import SPECIAL_TOKENS, Vocabulary, read_vocabulary

LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = [
    *("the", "a", "an", "of", "in", "on", "near", "and", "was", "who", "what", "when", "where", "built", "river"),
    *("bridge", "city", "king", "queen", "stone", "old", "new", "great", "mount", "##ain", "##ed", "19", "##84"),
]
PIECES = [*SPECIAL_TOKENS, *LETTERS, *"0123456789.,!?'-()\"$", *("##" + letter for letter in LETTERS + "0123456789")]


def write_vocabulary(folder: Path) -> Vocabulary:
    """Write a vocabulary that covers every word of lower-case letters, with frequent words as one piece."""
    path = folder / "vocab.txt"
    path.write_text("".join(f"{piece}\n" for piece in [*dict.fromkeys([*PIECES, *WORDS])]), encoding="utf-8")
    return read_vocabulary(path)


def random_document(seed: int, articles: int = 3) -> dict[str, Any]:
    """Return articles of random words, with punctuation and capitals; some contexts are short, some long."""
    chance = random.Random(seed)
    plain = [word for word in WORDS if not word.startswith("##")]

    def word() -> str:
        made = "".join(chance.choices(LETTERS, k=chance.randint(1, 7))) if chance.random() < 0.4 else None
        text = made or chance.choice(plain)
        return (text.capitalize() if chance.random() < 0.2 else text) + chance.choice(["", "", "", ",", ".", "'s"])

    data = []
    for article in range(articles):
        paragraphs = []
        for paragraph in range(chance.randint(1, 3)):
            words = [word() for _ in range(chance.choice([1, 4, 20, 60]))]
            context = " ".join(words)
            questions = []
            for number in range(chance.randint(1, 3)):
                first = chance.randrange(len(words))
                last = min(len(words), first + chance.randint(1, 4))
                text = " ".join(words[first:last])
                start = len(" ".join([*words[:first], ""]))
                asked = " ".join(word() for _ in range(chance.randint(1, 12))) + "?"
                answers = [{"text": text, "answer_start": start}] * chance.randint(1, 3)
                identity = f"{article}-{paragraph}-{number}"
                questions.append({"id": identity, "question": asked, "answers": answers})
            paragraphs.append({"context": context, "qas": questions})
        data.append({"title": f"Article_{article}", "paragraphs": paragraphs})
    return {"data": data, "version": "1.1"}


def parsed(document: dict[str, Any]) -> SquadSet:
    return parse_squad(document, "test.json", hashlib.sha256(json.dumps(document).encode()).hexdigest())


def single(context: str, *answers: tuple[str, int], question: str = "who?") -> SquadSet:
    """Return a data set of one question about one context."""
    marked = [{"text": text, "answer_start": start} for text, start in answers]
    entry = {"id": "q", "question": question, "answers": marked}
    return parsed({"data": [{"title": "t", "paragraphs": [{"context": context, "qas": [entry]}]}]})
