"""The registry of tasks, with what other packages need to know about a task before its model is built.

Configs, plans, checkpoints and exports are below ``tasks``, which needs TensorFlow; this module does not import it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Tuple

from model.architecture import EMB, EMBEDDING_HEAD, ENC_OUT, GLUE_HEAD, HEADS, HID, POOL, QA_HEAD, TOKEN_HEAD

PRETRAINING = "pretraining"
SQUAD = "squad"
CLASSIFICATION = "classification"
TOKEN_CLASSIFICATION = "token_classification"
SENTENCE_EMBEDDING = "sentence_embedding"

MASKED_WORDS_ALONE = (ENC_OUT, HEADS)  # the head layout of pre-training without next-sentence prediction
MASKED_WORDS_TITLE = "pre-training: masked language model"
MASKED_LM = "BertForMaskedLM"  # Hugging Face's class with these heads
# Hugging Face's names (problem_type) of what a classifier of texts says: one class, any number of labels, or a number.
SINGLE_LABEL, MULTI_LABEL, REGRESSION = "single_label_classification", "multi_label_classification", "regression"


@dataclass(frozen=True)
class TaskEntry:
    """What configs, plans, checkpoints and exports need to know of a task before its model is built.

    Attributes:
        head_layouts: the blocks that may follow the encoder layers. The first is used if a config specifies no stages;
            published fine-tuning configs of large models keep ``enc_out`` and ``pool`` before the head.
    """

    program: str
    description: str
    title: str
    hugging_face: str
    pipeline: str
    head_layouts: Tuple[Tuple[str, ...], ...]
    has_test_set: bool = False

    @property
    def head(self) -> str:
        """Name of the last block, which only this task has."""
        return self.head_layouts[0][-1]


# The registry of tasks; ``tasks.task_class`` finds the class of each in ``tasks/<name>.py``.
TASKS: Dict[str, TaskEntry] = {
    PRETRAINING: TaskEntry(
        program="run_pretraining.py",
        description="Pre-train BERT with masked language modelling and next-sentence prediction.",
        title=f"{MASKED_WORDS_TITLE} and next-sentence prediction",
        hugging_face="BertForPreTraining",
        pipeline="fill-mask",
        head_layouts=((ENC_OUT, POOL, HEADS),),
    ),
    SQUAD: TaskEntry(
        program="run_squad.py",
        description="Fine-tune and evaluate BERT on SQuAD.",
        title="question answering",
        hugging_face="BertForQuestionAnswering",
        pipeline="question-answering",
        head_layouts=((QA_HEAD,), (ENC_OUT, POOL, QA_HEAD), (POOL, QA_HEAD)),
    ),
    CLASSIFICATION: TaskEntry(
        program="run_seq_classification.py",
        description="Fine-tune and evaluate BERT on your own texts, or on tasks of GLUE and CLUE.",
        title="sequence classification",
        hugging_face="BertForSequenceClassification",
        pipeline="text-classification",
        head_layouts=((POOL, GLUE_HEAD), (ENC_OUT, POOL, GLUE_HEAD)),
        has_test_set=True,
    ),
    TOKEN_CLASSIFICATION: TaskEntry(
        program="run_token_classification.py",
        description="Fine-tune and evaluate BERT on named entities, in CoNLL's or CLUENER's files.",
        title="token classification",
        hugging_face="BertForTokenClassification",
        pipeline="token-classification",
        head_layouts=((TOKEN_HEAD,),),
        has_test_set=True,
    ),
    SENTENCE_EMBEDDING: TaskEntry(
        program="run_sentence_embedding.py",
        description="Fine-tune and evaluate BERT on your own pairs of texts, to embed sentences.",
        title="sentence embedding",
        hugging_face="BertModel",
        pipeline="sentence-similarity",
        head_layouts=((EMBEDDING_HEAD,),),
    ),
}

# The task of each of Hugging Face's classes; a plain encoder is of sentence embeddings.
TASK_OF_CLASS: Dict[str, str] = {
    **{entry.hugging_face: name for name, entry in TASKS.items()},
    MASKED_LM: PRETRAINING,
}


def expected_blocks(task: str, num_layers: int, use_next_sentence: bool = True) -> List[str]:
    """Return the blocks of a task's model, in order.

    Example:
        >>> expected_blocks("squad", 2)
        ['emb', 'hid', 'hid', 'qa_head']
    """
    return accepted_blocks(task, num_layers, use_next_sentence)[0]


def accepted_blocks(task: str, num_layers: int, use_next_sentence: bool = True) -> List[List[str]]:
    """Return every block list that makes a model of this task; the first is ``expected_blocks``."""
    layouts = TASKS[task].head_layouts
    if task == PRETRAINING and not use_next_sentence:
        layouts = (MASKED_WORDS_ALONE,)
    return [[EMB] + [HID] * num_layers + list(tail) for tail in layouts]
