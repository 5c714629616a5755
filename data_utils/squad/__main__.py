# PYTHON_ARGCOMPLETE_OK
"""Scores predictions of any origin: ``python -m data_utils.squad dev-v1.1.json predictions.json``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Dict, List, Optional

from data_utils.squad.examples import read_squad
from data_utils.squad.metric import score, score_with_no_answers
from utilities.commands import make_parser, run_main
from utilities.errors import UserError
from utilities.files import parse_json


def read_predictions(path: Path) -> Dict[str, str]:
    try:
        predictions = parse_json(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: cannot be read as JSON ({error})") from error
    if not isinstance(predictions, dict) or not all(isinstance(text, str) for text in predictions.values()):
        raise UserError(f'{path}: contains no predictions; they are an object {{"id of the question": "answer", …}}')
    return predictions


def _action(options: argparse.Namespace) -> None:
    squad = read_squad(options.data)
    predictions = read_predictions(options.predictions)
    answers = {q.id: [answer.text for answer in q.answers] for q in squad.questions if q.answers or q.is_impossible}
    if not squad.has_scores(no_answers=True):
        raise UserError(f"{options.data}: no question has answers to compare with")
    if not squad.impossible:
        scores, _ = score(answers, predictions)
    else:
        missing = next((question for question in answers if question not in predictions), None)
        if missing is not None:
            raise UserError(f'{options.predictions}: lacks question {missing}; predict each, "" stands for no answer')
        scores, _ = score_with_no_answers(answers, predictions, dict.fromkeys(answers, 0.0), 0.0)
        scores = {name: value for name, value in scores.items() if not name.startswith("best_")}  # all odds are equal
    print(json.dumps(scores))


def main(arguments: Optional[List[str]] = None) -> int:
    parser = make_parser("data_utils.squad", "Exact match and F1 of SQuAD 1.1 and 2.0.")
    parser.add_argument("data", type=Path, help="questions and answers, as dev-v1.1.json")
    parser.add_argument("predictions", type=Path, help="JSON: id of the question to answer")
    return run_main(parser, _action, arguments)


if __name__ == "__main__":
    sys.exit(main())
