"""SQuAD 1.1: the span of a context that answers a question (Devlin et al. 2019, section 4.2)."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

import numpy as np

from data_utils.records.pipeline import SampleReader
from data_utils.records_writer import write_atomically
from data_utils.squad.answers import Candidate, best_answers
from data_utils.squad.cache import cached_windows
from data_utils.squad.examples import SquadSet, check_alignment, place_of_answer
from data_utils.squad.metric import Marks, score
from data_utils.squad.source import TRAIN, VALIDATION, open_squad
from data_utils.squad.windows import Geometry, Windows
from data_utils.tokenizer import UNKNOWN
from execution.interface import Platform
from model.architecture import SQUAD, Architecture
from model.conversion import convert_squad
from model.huggingface import untrained_squad
from model.losses import LOSS
from model.unconverted import unconverted_squad
from utilities.config.schema import TrainingConfig
from utilities.errors import UserError
from utilities.report.answers import Answered, write_answers
from utilities.training.building import Converted, build_model, source_scope, tail_blocks
from utilities.training.squad_rows import window_rows_of
from utilities.training.start import Start
from utilities.training.task import BuiltModel, Fill, Predict
from utilities.training.vocabulary import Wording, wording_of

logger = logging.getLogger(__name__)

PREDICTIONS, N_BEST, PAGE = "predictions.json", "nbest_predictions.json", "predictions.html"


class Squad:
    """The task of ``run_squad.py``; see :class:`utilities.training.task.Task`.

    Raises:
        UserError: no vocabulary, or the questions to evaluate on cannot be read: said before training begins.
    """

    name = SQUAD
    outputs = ("start_logits", "end_logits")

    def __init__(self, config: TrainingConfig, architecture: Architecture, start: Optional[Start]):
        self._config = config
        self._architecture = architecture
        self._rows = window_rows_of(config)
        self.objective = self._rows.objective(accuracies=config.show_accuracy)
        self._facts: Dict[str, Any] = {}
        self._wording: Optional[Wording] = None
        self._dev: Optional[SquadSet] = None
        if not config.generated_dataset:
            self._wording = wording_of(config, architecture, start)
            if config.do_validation:
                self._dev = self._read(config.squad.dev_file, VALIDATION)

    @property
    def wording(self) -> Optional[Wording]:
        """The vocabulary and case that belong to the trained model; None with generated data."""
        return self._wording

    def open_data(self) -> SampleReader:
        """Windows of the training questions, or generated ones."""
        config = self._config
        if config.generated_dataset:
            reader = self._rows.generated(self._architecture.vocab_size, config.seed)
            self._facts = {"records": reader.count}
            return reader
        squad = self._read(config.squad.train_file, TRAIN)
        windows = self._windows(squad, labels=True)
        if not windows.count:
            raise UserError(f"{squad.origin}: no question has an answer in its context; name a file to train on")
        reader = self._rows.training(windows, self._words.vocabulary, self._architecture.vocab_size)
        self._facts = {"records": reader.count, **self._describe(squad, windows)}
        return reader

    def build(self, platform: Platform, fill: Fill) -> BuiltModel:
        """Hugging Face's BERT with a span head, converted unless ``replace_layers`` is false."""
        config, architecture = self._config, self._architecture
        with source_scope(config, platform):
            source = untrained_squad(architecture, config.seed)
        tail = tail_blocks(config, SQUAD)

        def recipe() -> Converted:
            if config.replace_layers:
                blocks, conversion = convert_squad(source, architecture, platform, tail)
                return self._rows.blocks(blocks), conversion
            return self._rows.blocks(unconverted_squad(source, platform, tail)), None

        return build_model(config, source, recipe, self._rows.shapes(), self.outputs, platform, fill)

    def dataset_facts(self, reader: SampleReader) -> Dict[str, Any]:
        """Questions, windows, and how far the marked answers could be used."""
        return self._facts

    def evaluate(self, predict: Predict, folder: Path) -> Dict[str, float]:
        """Answers to all questions of the validation set, written with a page of them, and their scores."""
        if self._dev is None:
            return {}
        squad, config = self._dev, self._config.squad
        windows = self._windows(squad, labels=False)
        logits = self._rows.logits(predict, windows, self._words.vocabulary, self._architecture.vocab_size)
        answers = best_answers(
            squad,
            windows,
            np.asarray(logits["start_logits"]),
            np.asarray(logits["end_logits"]),
            config.n_best_size,
            config.max_answer_length,
        )
        predictions = {identity: candidates[0].text for identity, candidates in answers.items()}
        write_predictions(folder, predictions, answers)
        expected = {q.id: [answer.text for answer in q.answers] for q in squad.questions if q.answers}
        scores, marks = score(expected, predictions) if expected else ({}, {})
        unscored = len(predictions) - len(expected)
        if unscored:
            logger.warning("%s: %s questions have no answers to compare with", squad.origin, f"{unscored:,}")
        title = f"{self._config.name}: answers to {Path(squad.origin).name}"
        page = write_answers(folder / PAGE, title, answered(squad, answers, marks), scores)
        logger.info("predictions: %s and %s; in their contexts: %s", folder / PREDICTIONS, N_BEST, page)
        return scores

    def summary(self, metrics: Dict[str, float], dataset: Dict[str, Any]) -> List[str]:
        """The loss beside that of a model that knows nothing."""
        places = self._config.max_seq_length
        return [
            f"{metrics[LOSS]:8.4f} nats: the loss of the last logging period, beside",
            f"{math.log(places):8.4f} nats: knowing nothing, ln({places:,} places)",
        ]

    def _read(self, file_name: str, split: str) -> SquadSet:
        squad = open_squad(self._config.dataset_dir, file_name, self._config.squad.dataset_name, split)
        for note in check_alignment(squad).notes():
            logger.warning("%s: %s", squad.origin, note)
        return squad

    @property
    def _words(self) -> Wording:
        assert self._wording is not None, "data that is not generated has a vocabulary"
        return self._wording

    def _windows(self, squad: SquadSet, labels: bool) -> Windows:
        config = self._config
        folder = Path(config.squad.cache_dir) if config.squad.cache_dir else Path(config.output_dir) / "cache"
        geometry = Geometry(config.max_seq_length, config.squad.max_query_length, config.squad.doc_stride)
        return cached_windows(folder, squad, *self._words, geometry, labels)

    def _describe(self, squad: SquadSet, windows: Windows) -> Dict[str, Any]:
        """What the report says of the training data."""
        vocabulary, lower_case = self._words
        used = len(np.unique(windows.question))
        if used < len(squad.questions):
            logger.warning(
                "%s: %s of %s questions are left out of training: their answers cannot be placed",
                squad.origin, f"{len(squad.questions) - used:,}", f"{len(squad.questions):,}",
            )  # fmt: skip
        alignment = check_alignment(squad)
        return {
            "windows": windows.count,
            "source": squad.origin,
            "sha256": squad.sha256,
            "contexts": len(squad.paragraphs),
            "questions": len(squad.questions),
            "questions_left_out": len(squad.questions) - used,
            "answers_marked_elsewhere": len(alignment.moved),
            "answers_not_in_context": len(alignment.absent),
            "windows_with_answer": int(np.count_nonzero(windows.start)),
            "unknown_pieces_share": float(np.mean(windows.texts.context_ids == vocabulary.id_of(UNKNOWN))),
            "vocabulary": {"file": str(vocabulary.path), "size": len(vocabulary.pieces), "sha256": vocabulary.sha256},
            "lower_case": lower_case,
        }


def write_predictions(folder: Path, predictions: Dict[str, str], answers: Dict[str, List[Candidate]]) -> None:
    """Writes ``predictions.json``, question to text, and ``nbest_predictions.json``, question to candidates."""
    candidates = {
        identity: [
            {
                "text": each.text,
                "probability": each.probability,
                "start_logit": each.start_logit,
                "end_logit": each.end_logit,
            }
            for each in found
        ]
        for identity, found in answers.items()
    }
    for name, content in ((PREDICTIONS, predictions), (N_BEST, candidates)):
        write_atomically(folder / name, lines_of(content).encode())


def lines_of(content: Mapping[str, Any]) -> str:
    """A JSON object with a line for each key."""
    lines = (f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in content.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def answered(squad: SquadSet, answers: Dict[str, List[Candidate]], marks: Dict[str, Marks]) -> List[Answered]:
    """What the page shows of each question."""
    rows = []
    for question in squad.questions:
        best, context = answers[question.id][0], squad.context(question)
        place = place_of_answer(context, question.answers[0]) if question.answers else None
        mark = marks.get(question.id)
        rows.append(
            Answered(
                article=squad.paragraphs[question.paragraph].title,
                question=question.text,
                context=context,
                answer=(best.begin, best.end),
                expected=[answer.text for answer in question.answers],
                expected_at=None if place is None else (place, place + len(question.answers[0].text)),
                confidence=best.probability,
                exact_match=mark.exact_match if mark else None,
                f1=mark.f1 if mark else None,
            )
        )
    return rows
