"""The sections of a config for the data: reading, evaluation, each task's files, packing."""

from __future__ import annotations

from typing import Any, Dict, Optional, Union

from pydantic import Field
from typing_extensions import Annotated, Literal

from settings.fields import (
    MAY_CHANGE,
    PER_PROCESS,
    BelowOne,
    Columns,
    Count,
    CountOrZero,
    Finite,
    Interval,
    LabelColumns,
    Names,
    PathText,
    Positive,
    Seed,
    Text,
    TextColumns,
    Workers,
)
from settings.sections import Section

USUAL_SEPARATOR = ";"  # of labels, for models and files that do not specify one


class Data(Section):
    """Reading of the data set."""

    shuffle: bool = Field(True, description="Shuffle samples again in each epoch, as a function of seed and epoch.")
    reader_threads: Annotated[Workers, PER_PROCESS] = Field(2, description="Threads that read and parse records.")
    prefetch: Annotated[CountOrZero, PER_PROCESS] = Field(2, description="Batches that are prepared ahead of training.")
    verify_checksums: Annotated[bool, PER_PROCESS] = Field(
        False, description="Check every file against the manifest's SHA-256 at start-up."
    )
    on_corrupt: Annotated[Literal["fail", "skip"], MAY_CHANGE] = Field(
        "fail",
        description="At a record that cannot be used: end the run, or read the next good one instead (pre-training).",
    )
    max_corrupt_records: Annotated[CountOrZero, MAY_CHANGE] = Field(
        100, description="With on_corrupt skip: how many different records may be skipped; one more ends the run."
    )


class Evaluation(Section):
    """Evaluation while training, on the validation set or on held-out text."""

    every: Optional[Union[Interval, Literal["epoch"]]] = Field(
        None,
        description="Weight updates from one evaluation to the next, or epoch; on IPUs each is made at the end of an "
        "execution. The best checkpoint is kept, and gives the final scores and predictions. Unset: only after "
        "training, of the last state.",
    )
    patience: Optional[Count] = Field(
        None, description="Stop training after this many evaluations without a better one. Unset: train to the end."
    )
    metric: Optional[Text] = Field(
        None,
        description="Score by which evaluations are compared; of a loss, lower is better. Unset: f1 (SQuAD, entities), "
        "macro_f1 (other tags), the first of the benchmark's scores (classification), mlm_loss (pre-training).",
    )


class Squad(Section):
    """Question answering."""

    train_file: PathText = Field("train-v1.1.json", description="Questions to train on, in dataset_dir.")
    dev_file: Annotated[PathText, MAY_CHANGE] = Field(
        "dev-v1.1.json", description="Questions to answer and score, in dataset_dir."
    )
    dataset_name: Text = Field(
        "rajpurkar/squad", description="Data set of the datasets library that is used if dataset_dir is unset."
    )
    doc_stride: Count = Field(
        128, description="Tokens from the start of one window over a long context to the start of the next."
    )
    max_query_length: Count = Field(64, description="Longest question, in tokens; the rest is cut off.")
    n_best_size: Annotated[Count, MAY_CHANGE] = Field(20, description="Candidate answers to write for each question.")
    max_answer_length: Annotated[Count, MAY_CHANGE] = Field(30, description="Longest answer, in tokens.")
    align_to_words: Annotated[bool, MAY_CHANGE] = Field(
        True,
        description="Extend answers that begin or end within a word to the whole word; false: the model's own spans, "
        "as in Google's program.",
    )
    no_answer_threshold: Annotated[Optional[Finite], MAY_CHANGE] = Field(
        None,
        description="SQuAD 2.0, in which questions without an answer are impossible: how much higher the score of no "
        "answer must be than the best answer's; 0 to begin with. Unset: SQuAD 1.1, each question has an answer.",
    )


class TokenData(Section):
    """Tagged words in column files (.txt), for token classification."""

    word_column: Annotated[Optional[Count], MAY_CHANGE] = Field(
        None, description="Column of the words, from 1. Unset: the first, which must have more than numbers."
    )
    tag_column: Annotated[Optional[Count], MAY_CHANGE] = Field(
        None, description="Column of the tags, from 1. Unset: the last."
    )


class UserFiles(Section):
    """Files of your own: CSV, TSV (without quoting) or JSON Lines, by their endings .csv, .tsv and .jsonl."""

    train_file: Optional[PathText] = Field(
        None, description="Rows to train on, in dataset_dir, or in the current folder if that is unset."
    )
    validation_file: Annotated[Optional[PathText], MAY_CHANGE] = Field(
        None, description="Rows to score. Unset: validation_fraction of train_file."
    )
    validation_fraction: BelowOne = Field(
        0.1, description="Fraction of train_file's rows, and of each class, held out if there is no validation_file."
    )
    validation_seed: Seed = Field(0, description="Seed of the choice of these rows, whatever the seed of the run.")


class ClassificationData(UserFiles):
    """Your own files to classify: CSV, TSV (without quoting) or JSON Lines, by their endings .csv, .tsv and .jsonl."""

    test_file: Annotated[Optional[PathText], MAY_CHANGE] = Field(
        None, description="Rows to predict with do_test; labels are not read."
    )
    text: Columns = Field(["text"], description="Column of the text, or the two columns of a pair.")
    label: LabelColumns = Field(
        "label",
        description="Column of the class, of the labels or of the number; or several columns, one for each label, of 0 "
        "and 1.",
    )
    label_separator: Optional[Text] = Field(
        None,
        description="Text between the labels of a sample, which may have any number of them. Unset: it has one class, "
        "unless there are several columns, or lists of labels.",
    )
    classes: Optional[Names] = Field(
        None,
        description="Names of the classes in the order of the outputs, or of the places in vectors of 0 and 1. Unset: "
        "those in train_file, sorted.",
    )
    regression: bool = Field(False, description="Predict a number, not a class.")
    class_weights: Literal["equal", "balanced"] = Field(
        "equal",
        description="Weight of a sample in the loss: equal, or balanced, which is samples / (classes × samples of its "
        "class), so that rare classes count as much as frequent ones.",
    )
    label_smoothing: BelowOne = Field(
        0.0, description="Share of the target that is spread evenly over all classes (label smoothing)."
    )

    def without_loss(self) -> Dict[str, Any]:
        """Return the fields about files and classes, not those about the loss."""
        return self.model_dump(exclude={"class_weights", "label_smoothing"})


class Embedding(UserFiles):
    """Sentence embeddings, trained on files of your own: CSV, TSV or JSON Lines."""

    text: TextColumns = Field(
        ["anchor", "positive"],
        description="Columns of the two texts of a pair; a third one has a wrong answer to the first (hard negative).",
    )
    label: Optional[Text] = Field(
        None,
        description="Column of the pair's similarity, -1 to 1, the target of the cosine. Unset: the second text is "
        "the right answer to the first, and the other answers of the micro batch are wrong (in-batch negatives).",
    )
    pooling: Optional[Literal["mean", "cls"]] = Field(
        None,
        description="Embedding of a text: the mean of its tokens' hidden states, or the hidden state of [CLS]. Unset: "
        "as the weights were trained, else the mean.",
    )
    normalize: Optional[bool] = Field(
        None,
        description="Whether the model that is trained scales embeddings to length 1; training compares directions. "
        "Unset: as the weights that it starts from do.",
    )
    scale: Positive = Field(20.0, description="Factor on the cosines before the softmax over the answers.")


class Packing(Section):
    """Packs: several sequences in one row of the batch (arXiv 2107.02027). global_batch then counts packs."""

    max_sequences_per_pack: Optional[Count] = Field(
        None,
        description="Most sequences in a pack, as the data set was packed by data_utils.packing; in fine-tuning, "
        "samples are packed at the start of the run. Unset: one padded sequence a row; or, if "
        "max_seq_length is unset too and the task is classification or entities, as many as save half of the rows.",
    )
    max_predictions_per_pack: Optional[Count] = Field(
        None,
        description="Most masked tokens in a pack (pre-training). Unset: as the data set's manifest says, or "
        "max_predictions_per_seq + max_sequences_per_pack.",
    )
    adjust_betas: bool = Field(
        True,
        description="Raise both betas of the optimizer to the power of the mean number of sequences in a pack, because "
        "an update then has that many times more samples. False: for a global batch that was made smaller instead.",
    )

    @property
    def is_on(self) -> bool:
        """Whether a row of the batch is a pack of sequences."""
        return self.max_sequences_per_pack is not None
