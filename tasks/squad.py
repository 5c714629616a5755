"""SQuAD 1.1 and 2.0: the span of a context that answers a question (Devlin et al. 2019, sections 4.2 and 4.3)."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from data_utils.records.features import FeatureSpec
from data_utils.records.pipeline import SampleReader
from data_utils.squad.answers import Candidate, best_answers, no_answer_odds
from data_utils.squad.examples import (
    TRAIN,
    VALIDATION,
    SquadSet,
    answer_position,
    check_alignment,
    open_squad,
    questions_about,
)
from data_utils.squad.metric import EXACT_MATCH, F1, Scores, score, score_with_no_answers
from data_utils.squad.windows import SPECIAL_IN_WINDOW, Geometry, WindowReader, Windows, make_windows, squad_features
from data_utils.tokenizer_files import UNKNOWN
from model.architecture import Architecture
from model.losses import SpanObjective
from model.tasks import SQUAD
from reports.answers import Answered, answers_page
from settings.schema import TrainingConfig
from tasks.answers import Answer
from tasks.fine_tuning import FineTuning, held_out_count
from training.initial_weights import InitialWeights
from training.prediction import Predict, Predictor, PredictorCall
from utilities.errors import UserError
from utilities.files import write_atomically
from utilities.metric_names import LOSS

logger = logging.getLogger(__name__)

MOST_SHOWN = 5  # answers to one question
PREDICTIONS, N_BEST, PAGE = "predictions.json", "nbest_predictions.json", "predictions.html"
NO_ANSWER_ODDS = "null_odds.json"  # as Google's program calls it


class Squad(FineTuning):
    """The task of ``run_squad.py``; see :class:`training.task.Task`."""

    name = SQUAD
    outputs = ("start_logits", "end_logits")
    text_counts, takes = (2,), "SQuAD takes 2 texts, a question and its context"
    text_columns = ("question", "context")
    predicted_columns = ("answer", "probability")

    def __init__(self, config: TrainingConfig, architecture: Architecture, start: Optional[InitialWeights]):
        super().__init__(config, architecture, start)
        self.objective = SpanObjective(config.show_accuracy)
        self._dev: Optional[SquadSet] = None
        if config.do_validation and not config.generated_dataset:
            self._dev = self._read(config.squad.dev_file, VALIDATION)
            if config.evaluation.every is not None and not self._dev.has_scores(self._scores_no_answers):
                raise UserError(
                    f"evaluation.every: no question of {self._dev.origin} has answers to compare with; name another"
                    " squad.dev_file, or unset evaluation.every"
                )

    @staticmethod
    def metrics(config: TrainingConfig) -> Sequence[str]:
        return (F1, EXACT_MATCH)

    def features(self, length: int, labels: bool = True) -> FeatureSpec:
        return squad_features(length, self._architecture.vocab_size, labels)

    def open_data(self) -> SampleReader:
        config = self._config
        if config.generated_dataset:
            return self.generated()
        squad = self._read(config.squad.train_file, TRAIN)
        no_answers = self._scores_no_answers
        windows = make_windows(squad, self.tokenizer, self._geometry, labels=True, unanswerable=no_answers)
        if not windows.count:
            raise UserError(f"{squad.origin}: no question has an answer in its context; name a file to train on")
        self._report_cut_questions(squad.origin, windows.questions_cut)
        reader = self.rows(self._samples(windows, labels=True), windows.tokens())
        self._description = {"records": reader.count, **self._describe(squad, windows)}
        return reader

    def evaluate(self, predict: Predictor, folder: Optional[Path]) -> Dict[str, float]:
        """Answer all questions of the validation set, write the answers and an HTML page, and return the scores."""
        if self._dev is None:
            return {}
        squad = self._dev
        answers = self._answers(predict, squad, is_reported=folder is not None)
        predictions = {identity: candidates[0].text for identity, candidates in answers.items()}
        scores, scores_by_question = self._scores(squad, predictions, answers)
        if folder is None:
            return scores
        write_predictions(folder, predictions, answers)
        if self._scores_no_answers:
            odds = {identity: no_answer_odds(candidates) for identity, candidates in answers.items()}
            write_atomically(folder / NO_ANSWER_ODDS, json_lines(odds).encode())
        unscored = len(predictions) - len(scores_by_question)
        if unscored:
            logger.warning("%s: %s questions have no answers to compare with", squad.origin, f"{unscored:,}")
        title = f"{self._config.name}: answers to {Path(squad.origin).name}"
        shares = {name: value for name, value in scores.items() if not name.endswith("threshold")}
        page = answers_page(title, answered(squad, answers, scores_by_question), shares)
        path = write_atomically(folder / PAGE, page)
        logger.info("predictions: %s and %s; in their contexts: %s", folder / PREDICTIONS, N_BEST, path)
        return scores

    def summary(self, metrics: Dict[str, float], dataset: Dict[str, Any]) -> List[str]:
        """Compare the loss with the uniform baseline."""
        tokens = self._config.max_seq_length
        return [
            f"{metrics[LOSS]:8.4f} nats: the loss of the last logging period, compared with",
            f"{math.log(tokens):8.4f} nats: uniform baseline, ln({tokens:,} tokens)",
        ]

    def answers(self, predict: Predict, texts: Sequence[Tuple[str, ...]]) -> List[Answer]:
        """Return the best answers, best first, to each of pairs of a question and its context."""
        return [Answer(candidates) for candidates in self._answers(predict, questions_about(texts)).values()]

    def lines(self, answer: Answer) -> List[str]:
        """Return a line for each of the best answers to a question about a context, with its probability."""
        return [f"{each.probability:7.2%}  {each.text or 'no answer'}" for each in answer[:MOST_SHOWN]]

    def row(self, answer: Answer) -> Dict[str, Any]:
        return {"answer": answer[0].text, "probability": round(answer[0].probability, 6)}

    def _scores(
        self, squad: SquadSet, predictions: Dict[str, str], answers: Dict[str, List[Candidate]]
    ) -> Tuple[Dict[str, float], Dict[str, Scores]]:
        """Return the scores of all questions and of each; none if the file has no answers."""
        threshold = self._config.squad.no_answer_threshold
        expected = {q.id: [answer.text for answer in q.answers] for q in squad.questions}
        if not squad.has_scores(self._scores_no_answers):
            return {}, {}
        if threshold is None:
            return score({identity: texts for identity, texts in expected.items() if texts}, predictions)
        # Not the empty one.
        best = {identity: max(each.text for each in found[:2]) for identity, found in answers.items()}
        odds = {identity: no_answer_odds(candidates) for identity, candidates in answers.items()}
        return score_with_no_answers(expected, best, odds, threshold)

    def report_cut(self, origin: str, call: PredictorCall) -> None:
        """Log how many questions were cut; contexts are not, since they have several windows."""
        self._report_cut_questions(origin, call.cut)

    def _report_cut_questions(self, origin: str, count: int) -> None:
        if count:
            longer = f"{count:,} questions are longer" if count > 1 else "1 question is longer"
            longest = self._geometry.max_query_length
            logger.warning("%s: %s than %d pieces (squad.max_query_length) and cut", origin, longer, longest)

    def _answers(self, predict: Predict, squad: SquadSet, is_reported: bool = False) -> Dict[str, List[Candidate]]:
        config = self._config.squad
        windows = make_windows(squad, self.tokenizer, self._geometry, labels=False)
        if isinstance(predict, PredictorCall):
            predict.count(len(squad.questions), windows.questions_cut)
        elif is_reported:
            self._report_cut_questions(squad.origin, windows.questions_cut)
        logits = self.predicted(predict, self._samples(windows, labels=False), windows.tokens())
        start, end = (logits[name] for name in self.outputs)
        return best_answers(
            squad,
            windows,
            start,
            end,
            config.n_best_size,
            config.max_answer_length,
            config.no_answer_threshold,
            config.align_to_words,
        )

    def _read(self, file_name: str, split: str) -> SquadSet:
        squad = open_squad(self._config.dataset_dir, file_name, self._config.squad.dataset_name, split)
        if squad.impossible and not self._scores_no_answers:
            raise UserError(
                f"{squad.origin}: {squad.impossible:,} questions have no answer (SQuAD 2.0); set"
                " squad.no_answer_threshold to 0 to train and score them, or name a file of SQuAD 1.1"
            )
        for note in check_alignment(squad).notes():
            logger.warning("%s: %s", squad.origin, note)
        return squad

    def _samples(self, windows: Windows, labels: bool) -> WindowReader:
        features = self.features(self._config.max_seq_length, labels)
        return WindowReader(features, windows, self.required_tokenizer_settings.vocabulary)

    @property
    def _scores_no_answers(self) -> bool:
        """Whether questions without an answer are impossible, and are trained and scored as such."""
        return self._config.squad.no_answer_threshold is not None

    @property
    def _geometry(self) -> Geometry:
        config = self._config
        longest = config.max_seq_length - SPECIAL_IN_WINDOW - 1  # predictions may have shorter windows than training
        return Geometry(config.max_seq_length, min(config.squad.max_query_length, longest), config.squad.doc_stride)

    def _describe(self, squad: SquadSet, windows: Windows) -> Dict[str, Any]:
        vocabulary = self.required_tokenizer_settings.vocabulary
        used = len(np.unique(windows.question))
        pieces = np.concatenate([context.ids for context in windows.contexts])
        without = 0 if self._scores_no_answers else sum(not question.answers for question in squad.questions)
        for count, reason in (
            (without, "they have no answers; if they are impossible (SQuAD 2.0), set squad.no_answer_threshold to 0"),
            (len(squad.questions) - used - without, "their answers cannot be located"),
        ):
            if count:
                left_out = f"{count:,} of {len(squad.questions):,} questions are left out of training"
                logger.warning("%s: %s: %s", squad.origin, left_out, reason)
        alignment = check_alignment(squad)
        return {
            "windows": windows.count,
            **held_out_count([] if self._dev is None else [len(self._dev.questions)]),
            "source": squad.origin,
            "sha256": squad.sha256,
            "contexts": len(squad.paragraphs),
            "questions": len(squad.questions),
            "questions_left_out": len(squad.questions) - used,
            "answers_marked_elsewhere": len(alignment.moved),
            "answers_not_in_context": len(alignment.absent),
            "windows_with_answer": int(np.count_nonzero(windows.start)),
            "unknown_pieces_share": float(np.mean(pieces == vocabulary.piece_id(UNKNOWN))),
            **self.vocabulary_description(),
        }


def write_predictions(folder: Path, predictions: Dict[str, str], answers: Dict[str, List[Candidate]]) -> None:
    """Write ``predictions.json``, question → text, and ``nbest_predictions.json``, question → candidates."""
    columns = ("text", "probability", "start_logit", "end_logit")
    candidates = {
        identity: [{name: getattr(each, name) for name in columns} for each in best]
        for identity, best in answers.items()
    }
    for name, content in ((PREDICTIONS, predictions), (N_BEST, candidates)):
        write_atomically(folder / name, json_lines(content).encode())


def json_lines(content: Mapping[str, Any]) -> str:
    """Return a JSON object with one line per key."""
    lines = (f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in content.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def answered(squad: SquadSet, answers: Dict[str, List[Candidate]], scores: Dict[str, Scores]) -> List[Answered]:
    rows = []
    for question in squad.questions:
        best, context = answers[question.id][0], squad.context(question)
        begin = answer_position(context, question.answers[0]) if question.answers else None
        own = scores.get(question.id)
        rows.append(
            Answered(
                article=squad.paragraphs[question.paragraph].title,
                question=question.text,
                context=context,
                answer=(best.begin, best.end),
                expected=[answer.text for answer in question.answers],
                expected_at=None if begin is None else (begin, begin + len(question.answers[0].text)),
                confidence=best.probability,
                exact_match=own.exact_match if own else None,
                f1=own.f1 if own else None,
            )
        )
    return rows


TASK = Squad
