"""A trained model that answers: ``model = load("runs/mine")``, then ``model("a text")``."""

from __future__ import annotations

from typing import Any, ContextManager, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np

from checkpoints.pretrained.opening import open_pretrained
from checkpoints.pretrained.pretrained import Pretrained
from checkpoints.pretrained.sentence_transformers import EmbeddingSettings, embedding_prompt, embedding_settings
from checkpoints.pretrained.weights import SPAN_HEAD
from data_utils.classification.features import Features
from model.blocks import run_blocks
from model.tasks import PRETRAINING, SENTENCE_EMBEDDING, SQUAD, TASK_OF_CLASS, TASKS
from tasks import prediction_config, restore_task
from tasks.answers import Answers
from tasks.file_predictions import FLOAT32, PRECISIONS, USUAL_LENGTH, USUAL_SQUAD_LENGTH, parts
from tasks.masked_words import restore_masked_words
from training.prediction import PredictorByLength
from utilities.errors import UserError
from utilities.tables import short

# A text, a pair of texts, or a list of these.
Texts = Union[str, Tuple[str, ...], List[str], List[Tuple[str, ...]]]


class Model:
    """A trained model, which is called with a text, a pair of texts as a tuple, or a list of these.

    Attributes:
        task: name of the task.
        answering: encodes texts, and makes answers of the model's outputs.
    """

    def __init__(self, answering: Any, predict: PredictorByLength) -> None:
        self.task: str = answering.name
        self.answering = answering
        self._predict = predict

    def __repr__(self) -> str:
        return f"<a model of {self.task}>"

    def __call__(self, texts: Texts, **options: Any) -> Any:
        """Return the answer to a text or pair, or to each of a list.

        An answer has classes or labels with their probabilities (``Choice``), entities (``Entity``), answers to a
        question about a context (``Candidate``) or the pieces that fill a blank (``Filling``); that of a regression is
        a number, and the embeddings of N texts are an array ``(N, H)``.

        Args:
            texts: for answers to questions, pairs of question and context.
            options: those of the task, such as ``top=10`` for the blanks of a pre-trained model.

        Raises:
            UserError: the task takes another number of texts, or cannot use a text.
        """
        single = not isinstance(texts, list)
        samples = [checked(each) for each in ([texts] if single else texts)]
        for sample in samples:
            self.answering.check_texts(len(sample))
        by_count: Dict[int, List[int]] = {}
        for number, sample in enumerate(samples):
            by_count.setdefault(len(sample), []).append(number)
        answers: List[Any] = [None] * len(samples)
        with self.progress(len(samples)):
            for numbers in by_count.values():
                for part in parts(numbers):
                    for number, answer in zip(part, self.answers([samples[number] for number in part], **options)):
                        answers[number] = answer
        if single:
            return answers[0]
        return np.stack(answers) if answers and isinstance(answers[0], np.ndarray) else Answers(answers)

    def answers(self, samples: Sequence[Any], **options: Any) -> Sequence[Any]:
        """Return the answer to each of some samples, all with one number of texts."""
        answers: Sequence[Any] = self.answering.answers(self._predict, samples, **options)
        return answers

    def tags(self, sentences: Sequence[Sequence[str]], origin: str) -> List[List[str]]:
        """Return the tags of the words of each sentence, by a model of token classification."""
        tags: List[List[str]] = self.answering.tags(self._predict, sentences, origin=origin)
        return tags

    def logits(self, inputs: Features) -> np.ndarray:
        """Return the outputs of a classifier of texts, ``(N, classes)``."""
        logits: np.ndarray = self.answering.logits_of(self._predict, inputs)
        return logits

    def progress(self, total: int) -> ContextManager[None]:
        """Within the block, show how many of the samples have been predicted."""
        if self.task == SQUAD:  # a question may have several windows
            return self._predict.showing(None, "predicted", "windows")
        return self._predict.showing(total, "predicted", "samples")


def checked(texts: Any) -> Tuple[str, ...]:
    """Return a text or several as a sample.

    Raises:
        UserError: one is empty or no text.
    """
    sample = texts if isinstance(texts, tuple) else (texts,)
    if not all(isinstance(text, str) and text.strip() for text in sample):
        raise UserError(f"{short(texts)} has no text; give a text, a pair as a tuple, or a list of these")
    return sample


def load_model(checkpoint: str, key: str, task: Optional[str] = None, **options: Any) -> Model:
    """Open a checkpoint and return its model; see :func:`tasks.load`.

    Args:
        key: the flag or function that named the checkpoint, for messages.
        options: those of :func:`restored_model`.

    Raises:
        UserError: there is no such checkpoint, or it is not one of the task.
    """
    start = open_pretrained(checkpoint, key)
    task = task or trained_task(start)
    if task is None:
        raise UserError(f"{key}: {start.origin} does not say what it was trained for; name one of {', '.join(TASKS)}")
    return restored_model(start, task, **options)


def restored_model(
    start: Pretrained,
    task: str,
    vocab_file: Optional[str] = None,
    max_seq_length: Optional[int] = None,
    glue_task: Optional[str] = None,
    classification_data: Optional[Dict[str, Any]] = None,
    pooling: Optional[str] = None,
    prompt: Optional[str] = None,
    normalize: bool = False,
    precision: str = FLOAT32,
) -> Model:
    """Return the model of a checkpoint; by default, all is as the checkpoint says.

    Raises:
        UserError: the checkpoint is not one of the task, or there is no such number format.
    """
    if precision not in PRECISIONS:
        raise UserError(f"precision is {precision}; set it to one of {', '.join(PRECISIONS)}")
    if task not in TASKS:
        raise UserError(f"{start.key}: {start.origin} was trained for {task}, which is not a task of this program")
    if task == PRETRAINING:
        words = restore_masked_words(start, vocab_file, precision)
        return Model(words, PredictorByLength(words.fillings))
    known = (embedding_settings(start) if task == SENTENCE_EMBEDDING else None) or EmbeddingSettings()
    trained = (start.settings.get("config") or {}) if start.own else {}
    if glue_task is None and classification_data is None:
        glue_task, classification_data = trained.get("glue_task"), trained.get("classification_data")
    usual = USUAL_SQUAD_LENGTH if task == SQUAD else USUAL_LENGTH
    length = known.length if task == SENTENCE_EMBEDDING else trained.get("max_seq_length")
    config = prediction_config(
        precision,
        glue_task=glue_task,
        classification_data=classification_data,
        squad=trained.get("squad") or {},
        embedding={"pooling": pooling or known.pooling},
        max_seq_length=max_seq_length or min(length or usual, start.architecture["max_position_embeddings"]),
        vocab_file=vocab_file,
    )
    answering, built, _ = restore_task(start, task, config)
    if task == SENTENCE_EMBEDDING:
        answering.prompt = embedding_prompt(start, pooling or known.pooling, prompt)
        answering.normalizes = known.normalize or normalize

    def outputs(features: Dict[str, Any]) -> Dict[str, Any]:
        tensors = run_blocks(built.blocks, features)
        return {name: tensors[name] for name in answering.outputs}

    return Model(answering, PredictorByLength(outputs))


def trained_task(start: Pretrained) -> Optional[str]:
    """Return the task that a checkpoint was trained for; None if it does not say."""
    if start.own:
        named: Optional[str] = start.settings.get("task")
        return named
    if f"{SPAN_HEAD}.weight" in start.weights:  # Google's checkpoints name no class
        return SQUAD
    if embedding_settings(start) is not None:
        return SENTENCE_EMBEDDING
    named_tasks = (TASK_OF_CLASS.get(name) for name in start.settings.get("architectures") or ())
    return next((task for task in named_tasks if task not in (None, SENTENCE_EMBEDDING)), None)
