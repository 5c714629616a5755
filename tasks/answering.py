"""A trained model that answers: ``model = load("runs/mine")``, then ``model("a text")``."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Optional, Tuple, Union

import numpy as np

from checkpoints.pretrained.opening import open_pretrained
from checkpoints.pretrained.pretrained import Pretrained, longest_text
from checkpoints.pretrained.sentence_transformers import EmbeddingSettings, embedding_prompt, embedding_settings
from checkpoints.pretrained.weights import SPAN_HEAD
from model.blocks import run_blocks
from model.tasks import PRETRAINING, SENTENCE_EMBEDDING, SQUAD, TASK_OF_CLASS, TASKS
from settings.rules import SHORTEST_SEQUENCE
from tasks import prediction_config, restore_task
from tasks.answers import Answers
from tasks.file_predictions import FLOAT32, PRECISIONS, USUAL_SQUAD_LENGTH, parts
from tasks.masked_words import restore_masked_words
from tasks.named_models import HEADS, other_head
from training.prediction import PredictorByLength, PredictorCall
from utilities.errors import UserError
from utilities.files import is_unicode
from utilities.tables import short

ENCODER = TASKS[SENTENCE_EMBEDDING].hugging_face  # the class of a model that may be of any task

# A text, a pair of texts, or a list of these.
Texts = Union[str, Tuple[str, ...], List[str], List[Tuple[str, ...]]]


class Model:
    """A trained model, which is called with a text, a pair of texts as a tuple, or a list of these."""

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
        """
        single = not isinstance(texts, list)
        samples = [checked(each) for each in ([texts] if single else texts)]
        for sample in samples:
            self.answering.check_texts(len(sample))
        by_count: Dict[int, List[int]] = {}
        for number, sample in enumerate(samples):
            by_count.setdefault(len(sample), []).append(number)
        answers: List[Any] = [None] * len(samples)
        with self.call(len(samples), "the text" if single else "the texts") as call:
            for numbers in by_count.values():
                for part in parts(numbers):
                    found = self.answering.answers(call, [samples[number] for number in part], **options)
                    for number, answer in zip(part, found):
                        answers[number] = answer
        if single:
            return answers[0]
        return np.stack(answers) if answers and isinstance(answers[0], np.ndarray) else Answers(answers)

    @contextmanager
    def call(self, total: int, origin: str) -> Iterator[PredictorCall]:
        """Within the block, one thread computes samples; at its end, what was cut of their ``origin`` is logged."""
        # A question may have several windows.
        shown = (None, "windows") if self.task == SQUAD else (total, "samples")
        with self._predict.call(shown[0], "predicted", shown[1]) as call:
            yield call
        self.answering.report_cut(origin, call)


def checked(texts: Any) -> Tuple[str, ...]:
    """Return a text or several as a sample."""
    sample = texts if isinstance(texts, tuple) else (texts,)
    kinds = [type(text).__name__ for text in sample if not isinstance(text, str)]
    if kinds or not sample:
        what = f"has a {kinds[0]}, not a text" if isinstance(texts, tuple) and kinds else "is not a text"
        raise UserError(f"{short(texts)} {what}; give a text, a pair as a tuple, or a list of these")
    if not all(text.strip() for text in sample):
        raise UserError(f"{short(sample[0] if len(sample) == 1 else sample)} has no text; write one, or leave it out")
    if not all(is_unicode(text) for text in sample):
        raise UserError(f"{short(texts)} has half a character (a lone surrogate), so it is not text; correct it")
    return sample


def load_model(checkpoint: str, key: str, task: Optional[str] = None, **options: Any) -> Model:
    """Return the model of a checkpoint, which ``key`` named; see :func:`tasks.load` and :func:`restored_model`."""
    start = open_pretrained(checkpoint, key)
    if task is not None and task not in TASKS:
        raise UserError(f"{key}: {task!r} is not the name of a task; name one of {', '.join(TASKS)}")
    task = task or trained_task(start)
    named = [name for name in start.classes if name != ENCODER]
    if task is None and named:
        raise UserError(
            f"{key}: {start.origin} is a {named[0]}, which answers nothing here; fine-tune it, or take its"
            f" encoder as {SENTENCE_EMBEDDING}"
        )
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
    """Return the model of a checkpoint; by default, all is as the checkpoint says."""
    if precision not in PRECISIONS:
        raise UserError(f"precision is {precision}; set it to one of {', '.join(PRECISIONS)}")
    if task not in TASKS:
        raise UserError(f"{start.key}: {start.origin} was trained for {task}, which is not a task of this program")
    refuse_other_head(start, task)
    if task == PRETRAINING:
        words = restore_masked_words(start, vocab_file, precision)
        return Model(words, words.predictor())
    known = (embedding_settings(start) if task == SENTENCE_EMBEDDING else None) or EmbeddingSettings()
    trained = (start.settings.get("config") or {}) if start.native else {}
    if glue_task is None and classification_data is None:
        glue_task, classification_data = trained.get("glue_task"), trained.get("classification_data")
    length = usual_length(start, task) if max_seq_length is None else max_seq_length
    if isinstance(max_seq_length, int) and max_seq_length < SHORTEST_SEQUENCE:
        raise UserError(
            f"max_seq_length is {length}; set it to {SHORTEST_SEQUENCE} or more, up to the model's positions"
        )
    config = prediction_config(
        precision,
        glue_task=glue_task,
        classification_data=classification_data,
        squad=trained.get("squad") or {},
        embedding={"pooling": pooling or known.pooling},
        max_seq_length=length,
        vocab_file=vocab_file,
    )
    skipped = 0  # tokens of a prompt that are not pooled
    answering, built = restore_task(start, task, config)
    if task == SENTENCE_EMBEDDING:
        own_prompt = embedding_prompt(start, prompt)
        answering.prompt, answering.normalizes = own_prompt.text, known.normalize or normalize
        if not own_prompt.is_pooled:
            skipped = 1 + len(answering.tokenizer.encode(own_prompt.text, add_special_tokens=False).ids)  # with [CLS]
            if skipped >= length:
                raise UserError(f"max_seq_length is {length}, but the prompt has {skipped} tokens; raise it")

    def outputs(features: Dict[str, Any]) -> Dict[str, Any]:
        tensors = run_blocks(built.blocks[:-1], features)
        pooled = {name: tensors[name][:, skipped:] if skipped else tensors[name] for name in built.blocks[-1].reads}
        tensors = run_blocks(built.blocks[-1:], {**tensors, **pooled})
        return {name: tensors[name] for name in answering.outputs}

    return Model(answering, PredictorByLength(outputs))


def refuse_other_head(start: Pretrained, task: str) -> None:
    """Refuse a checkpoint whose head is another task's; some have the same names."""
    if task not in HEADS:  # others read the encoder alone, or look for their head
        return
    trained, named = trained_task(start), [name for name in start.classes if name != ENCODER]
    what = f"a {named[0]}" if named else f"of {trained}"
    if trained != task and (named or trained is not None):
        raise UserError(other_head(start.origin, what, start.key, task))


def usual_length(start: Pretrained, task: str) -> int:
    """Return the number of tokens of a text that a model takes unless a user sets it.

    A run takes as many as in training. Other models take what their tokenizer's files say, or else all positions;
    those that answer questions take windows of the usual length, in which nothing is cut.
    """
    if task == SENTENCE_EMBEDDING:
        known = embedding_settings(start)
        if known is not None and known.length is not None:
            return min(known.length, start.architecture["max_position_embeddings"])
    longest = longest_text(start, task)
    if start.native:
        return longest
    if longest < SHORTEST_SEQUENCE:
        raise UserError(
            f"{start.key}: {start.origin}: its tokenizer takes {longest} tokens at most (model_max_length), but"
            f" {SHORTEST_SEQUENCE} are needed; set max_seq_length"
        )
    return min(longest, USUAL_SQUAD_LENGTH) if task == SQUAD else longest


def trained_task(start: Pretrained) -> Optional[str]:
    """Return the task that a checkpoint was trained for; None if it does not say."""
    if start.native:
        named: Optional[str] = start.settings.get("task")
        return named
    if f"{SPAN_HEAD}.weight" in start.weights:  # Google's checkpoints name no class
        return SQUAD
    if embedding_settings(start) is not None:
        return SENTENCE_EMBEDDING
    named_tasks = (TASK_OF_CLASS.get(name) for name in start.classes)
    return next((task for task in named_tasks if task not in (None, SENTENCE_EMBEDDING)), None)
