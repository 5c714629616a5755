"""The config as one typed object: every key has its type, unit, default and help here or in ``sections.py``.

To add a field, declare it in :class:`TrainingConfig` or in a section. Flags, validation, help text and plan follow.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple, Union

from pydantic import Field
from typing_extensions import Annotated, Literal

from model.tasks import SENTENCE_EMBEDDING
from settings.data_sections import ClassificationData, Data, Embedding, Evaluation, Packing, Squad, TokenData, UserFiles
from settings.fields import (
    MAY_CHANGE,
    PER_PROCESS,
    AboveOne,
    Count,
    CountOrZero,
    FileOnly,
    Leaf,
    Names,
    PathText,
    Positive,
    SectionInfo,
    Seed,
    Size,
    Text,
    walk,
)
from settings.sections import SIZES, BertConfig, Execution, GlobalBatch, IpuConfig, OptimizerOptions, Section
from settings.wandb import EnableWandb, WandbEntity, WandbProject, WandbTags  # room: wandb
from sparsity.section import Sparsity  # room: sparsity
from teacher.section import DISTILLATION, Distillation  # room: teacher
from utilities.environment import is_graphcore

LOW_PRECISION = ("float16", "bfloat16")  # precisions whose weights are rounded

# Classes of each benchmark task: 1 for a regression, 2 for all others.
_LABELS = {"mnli": 3, "cmnli": 3, "stsb": 1, "tnews": 15, "iflytek": 119}
GlueTask = Literal[
    "cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst2", "stsb", "wnli",
    "afqmc", "tnews", "iflytek", "cmnli", "wsc", "csl",
]  # fmt: skip


class TrainingConfig(Section):
    """All settings of a run of any task."""

    extends: Annotated[Union[Text, Names, None], FileOnly()] = Field(
        None,
        description="Config files (paths relative to this one) that this one builds on: merged in "
        "order, this file last; objects merge, all other values replace.",
    )
    about: Annotated[Any, FileOnly()] = Field(None, description="Free comment; no effect.")

    name: Annotated[Optional[Text], PER_PROCESS] = Field(
        None, description="Name of the run. Unset: the first config file's name without .json."
    )
    seed: Seed = Field(1984, description="Seed of weights, dropout and data order.")

    dataset_dir: Annotated[Optional[PathText], PER_PROCESS] = Field(
        None,
        description="Folder of the data set: TFRecords (pre-training) or the task's files. $VAR and ~ are expanded.",
    )
    validation_dir: Annotated[Optional[PathText], PER_PROCESS] = Field(
        None,
        description="Folder of held-out TFRecords to evaluate on (pre-training). Unset: dataset_dir/validation, if it "
        "exists. $VAR and ~ are expanded.",
    )
    generated_dataset: bool = Field(
        False, description="Train on random data instead of dataset_dir, to measure throughput."
    )
    max_seq_length: Size = Field(
        128, description="Tokens per sequence. Unset in fine-tuning (not of SQuAD): as many as the longest sample has."
    )
    max_predictions_per_seq: Size = Field(20, description="Most masked tokens per sequence (pre-training).")
    data: Data = Field(default_factory=Data, description="Reading of the data set.")
    packing: Packing = Field(default_factory=Packing, description="Several sequences in one row of the batch.")

    bert_model_name: Optional[PathText] = Field(
        None, description="Hugging Face model name or local folder to start from (fine-tuning)."
    )
    bert_config: Optional[BertConfig] = Field(
        None,
        description="Architecture; optional if bert_model_name or pretrained_ckpt_path names weights, which determine "
        "it.",
    )
    pretrained_ckpt_path: Optional[PathText] = Field(
        None,
        description="Checkpoint to start from: a file, a Hugging Face folder, or a run or a folder of "
        "checkpoints, of which the best is used if the run recorded it, otherwise the newest. $VAR and ~ are expanded.",
    )
    continue_pretrained: bool = Field(
        False,
        description="Continue the training that wrote pretrained_ckpt_path, a checkpoint N.ckpt of Graphcore's "
        "program: its optimizer's moments and its number of updates are taken with its weights.",
    )
    word_vectors: bool = Field(
        False,
        description="Start the word embeddings of random weights from vectors that are computed from counts of "
        "neighbouring word pieces in dataset_dir (pre-training).",
    )
    allow_missing_weights: bool = Field(
        False, description="Let encoder weights that the checkpoint lacks start from random numbers; they are listed."
    )

    vocab_file: Annotated[Optional[PathText], PER_PROCESS] = Field(
        None,
        description="vocab.txt or tokenizer.json to tokenise with, or a folder with one (fine-tuning). "
        "Unset: the one that belongs to the model.",
    )
    lower_case: Optional[bool] = Field(
        None,
        description="Lower-case text and strip accents (fine-tuning). Unset: as vocab_file says, or as the model was "
        "trained.",
    )

    global_batch: GlobalBatch = Field(default_factory=GlobalBatch, description="Samples per weight update.")
    total_num_train_samples: Optional[Count] = Field(
        None,
        description="Length of training in samples, packed or not; steps = samples / samples of a global batch, "
        "rounded down. Unset, as num_epochs is: in pre-training what the published program for IPUs took for the "
        "sequence length (128: 460,849,152; 384 and 512: 34,239,360).",
    )
    num_epochs: Optional[Count] = Field(
        None,
        description="Length of training in passes over the data. Where total_num_train_samples is given as well, that "
        "takes precedence, unless only num_epochs is given as a flag.",
    )
    sparsity: Sparsity = Field(default_factory=Sparsity, description="Block-sparse encoder.")  # room: sparsity
    optimizer_opts: OptimizerOptions = Field(
        default_factory=OptimizerOptions, description="Optimizer and its constants."
    )

    do_training: Annotated[bool, MAY_CHANGE] = Field(True, description="Train.")
    do_validation: Annotated[bool, MAY_CHANGE] = Field(
        True, description="Evaluate on the validation set, or on held-out text (pre-training)."
    )
    evaluation: Evaluation = Field(default_factory=Evaluation, description="Evaluation while training.")
    do_test: Annotated[bool, MAY_CHANGE] = Field(
        False, description="Write predictions for the test set (classification, entities)."
    )
    evaluation_batch_size: Annotated[Optional[Size], MAY_CHANGE] = Field(
        None, description="Samples per evaluation batch. Unset: 32, or the micro batch where that is larger."
    )
    glue_task: Optional[GlueTask] = Field(
        None,
        description="Task of the GLUE or CLUE benchmark (classification). Unset: classification_data, or if a config "
        "for IPUs has neither, mrpc, as in the published program.",
    )
    classification_data: Optional[ClassificationData] = Field(
        None, description="Your own files to classify, instead of glue_task: CSV, TSV or JSON Lines."
    )
    distillation: Distillation = DISTILLATION  # room: teacher

    squad: Squad = Field(default_factory=Squad, description="Question answering.")
    token_data: TokenData = Field(default_factory=TokenData, description="Tagged words in column files.")
    embedding: Embedding = Field(default_factory=Embedding, description="Sentence embeddings.")

    ipu_config: IpuConfig = Field(default_factory=IpuConfig, description="Pipeline and IPU settings.")
    execution: Execution = Field(default_factory=Execution, description="Where and how the run executes.")
    replace_layers: bool = Field(
        True, description="Replace Hugging Face's layers by the faster equivalents of this project."
    )
    use_outlining: Annotated[bool, MAY_CHANGE] = Field(
        True, description="Compile the encoder layers once and share the code (IPU)."
    )
    enable_recomputation: Annotated[Optional[bool], MAY_CHANGE] = Field(
        None,
        description="Recompute encoder layers' activations in the backward pass: less memory, more time. Unset: on"
        " IPUs.",
    )
    optimizer_state_offchip: Annotated[Optional[bool], MAY_CHANGE] = Field(
        None,
        description="Keep optimizer state outside the device's memory (of a GPU: in the host's); on IPUs "
        "replicated_tensor_sharding needs it. Unset: on IPUs.",
    )
    enable_stochastic_rounding: bool = Field(
        True,
        description="Use stochastic rounding for float16 and bfloat16 weights, so that small updates are not lost; no "
        "effect on float32 weights.",
    )
    matmul_partials_type: Literal["half", "float"] = Field(
        "half", description="Number format of partial sums in matrix products (IPU)."
    )
    embedding_serialization_factor: Annotated[Count, MAY_CHANGE] = Field(
        2, description="Slices in which the tied embedding is multiplied, to save memory; divides vocab_size."
    )
    min_remote_tensor_size: Annotated[CountOrZero, MAY_CHANGE] = Field(
        50000, description="Smallest tensor, in bytes, that is kept outside the device's memory (IPU)."
    )
    fp_exceptions: Annotated[bool, MAY_CHANGE] = Field(False, description="Stop at the first floating-point exception.")
    compile_only: Annotated[bool, MAY_CHANGE] = Field(
        False, description="Compile the training step, then exit without training."
    )

    use_qkv_bias: Optional[bool] = Field(
        None,
        description="Biases on query, key and value; needs use_qkv_split. Unset: false from scratch, "
        "else as the checkpoint has it.",
    )
    use_qkv_split: Optional[bool] = Field(
        None,
        description="Separate matrices for query, key and value instead of one. Unset: false from "
        "scratch, else as the checkpoint needs it.",
    )
    use_projection_bias: Optional[bool] = Field(
        None, description="Bias on attention's output matrix. Unset: false from scratch, else as the checkpoint has it."
    )
    use_cls_layer: Optional[bool] = Field(
        None,
        description="Dense, activation and LayerNorm before the masked-LM product. Unset: false from "
        "scratch, else as the checkpoint has it.",
    )
    use_prediction_bias: Optional[bool] = Field(
        None, description="Bias on masked-LM logits. Unset: true from scratch, else as the checkpoint has it."
    )

    use_next_sentence: bool = Field(
        True,
        description="Pre-train with next-sentence prediction too, as BERT does; false: on masked words alone, without "
        "the pooler, which stages then leave out.",
    )

    output_dir: Annotated[PathText, PER_PROCESS] = Field(
        "runs", description="Folder under which each run gets its own folder."
    )
    save_ckpt_path: Annotated[Optional[PathText], PER_PROCESS] = Field(
        None, description="Folder for checkpoints. Unset: inside the run's folder. $VAR and ~ are expanded."
    )
    ckpt_every_n_steps_per_execution: Annotated[Count, MAY_CHANGE] = Field(
        2000, description="Logging periods from one checkpoint to the next."
    )
    checkpoint_minutes: Annotated[Optional[Positive], MAY_CHANGE] = Field(
        None, description="Also write a checkpoint when the last one is this many minutes old. Unset: by steps only."
    )
    keep_last: Annotated[Optional[Count], MAY_CHANGE] = Field(
        5, description="Newest checkpoints to keep; none keeps all."
    )
    keep_every: Annotated[Optional[Count], MAY_CHANGE] = Field(
        None, description="Also keep for good the first checkpoint at or after each multiple of this many updates."
    )
    resume: Annotated[bool, PER_PROCESS] = Field(
        False,
        description="Resume the run of this name from its newest whole checkpoint. Settings that influence the outcome "
        "must not have changed.",
    )
    new_length: Annotated[bool, PER_PROCESS] = Field(
        False,
        description="With resume: go on with another total_num_train_samples or num_epochs, also after the end. The "
        "learning rate goes on where the schedule of the new length has it.",
    )
    on_divergence: Annotated[Literal["stop", "rewind"], MAY_CHANGE] = Field(
        "stop",
        description="At a loss that is not a number, or that explodes: stop, or go back to the last checkpoint and "
        "skip the batches that may have caused it.",
    )
    max_rewinds: Annotated[CountOrZero, MAY_CHANGE] = Field(
        3, description="Maximum number of rewinds before the run stops."
    )
    exploding_loss_ratio: Annotated[Optional[AboveOne], MAY_CHANGE] = Field(
        3.0,
        description="A loss explodes when it exceeds, in three consecutive logging periods, this many times the median "
        "of the last 100, and the run's first loss. none: only a loss that is not a number is divergence.",
    )
    global_batches_per_log: Annotated[Count, MAY_CHANGE] = Field(
        1,
        description="Weight updates per log line: one call of the compiled program on IPUs, elsewhere calls of at most "
        "10 s or one update.",
    )
    logging: Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"], PER_PROCESS] = Field(
        "INFO", description="Lowest severity of log lines shown."
    )
    show_accuracy: Annotated[bool, MAY_CHANGE] = Field(
        True, description="Compute and log accuracies in addition to the losses."
    )
    tensorboard: Annotated[bool, MAY_CHANGE] = Field(True, description="Write TensorBoard event files.")
    report: Annotated[bool, MAY_CHANGE] = Field(
        True, description="Write the HTML report, and refresh it during the run."
    )
    report_every_minutes: Annotated[Positive, MAY_CHANGE] = Field(
        5.0, description="Minimum time between two refreshes of the report during the run, in minutes."
    )
    enable_wandb: EnableWandb = False  # room: wandb
    wandb_entity_name: WandbEntity = None  # room: wandb
    wandb_project_name: WandbProject = "bert"  # room: wandb
    wandb_tags: WandbTags = None  # room: wandb

    @property
    def weights(self) -> Optional[str]:
        """Path or name of the weights to start from; None if they are random."""
        return self.bert_model_name if self.pretrained_ckpt_path is None else self.pretrained_ckpt_path

    @property
    def weights_key(self) -> str:
        """The field that names the weights, if they are not random."""
        return "bert_model_name" if self.pretrained_ckpt_path is None else "pretrained_ckpt_path"

    @property
    def data_folder(self) -> Optional[Path]:
        """The folder of the data set; None without one, or for random data."""
        return None if self.dataset_dir is None or self.generated_dataset else Path(self.dataset_dir)

    def user_files(self, task: str) -> Tuple[str, Optional[UserFiles]]:
        """Return the name and the values of the section that describes the user's own files; None if there are none."""
        if task == SENTENCE_EMBEDDING:
            return "embedding", self.embedding
        return "classification_data", self.classification_data

    @property
    def open_sizes(self) -> List[str]:
        """The sizes of ``bert_config`` that the weights decide."""
        if self.bert_config is None or self.weights is None:
            return []
        return [name for name in SIZES if name not in self.bert_config.model_fields_set]

    @property
    def splits(self) -> List[str]:
        """The parts of the data set that the run reads, of train, validation and test."""
        flags = {"train": self.do_training, "validation": self.do_validation, "test": self.do_test}
        return [name for name, is_read in flags.items() if is_read]

    @property
    def runs_on_ipus(self) -> bool:
        """Whether the run uses Graphcore's TensorFlow, which is not imported to know it."""
        return is_graphcore(self.execution.platform)

    @property
    def runs_in_sequence(self) -> bool:
        """Whether one device runs all stages, as far as the config says."""
        in_sequence = not self.runs_on_ipus
        in_sequence &= (self.execution.pipeline_devices or 1) == 1  # room: pipeline
        return in_sequence

    @property
    def number_of_labels(self) -> int:
        """The number of the classifier's outputs; 1 for a regression."""
        data = self.classification_data
        if data is None:
            return _LABELS.get(self.glue_task or "", 2)
        return 1 if data.regression else len(data.classes or ()) or 2

    @property
    def predictions_per_row(self) -> int:
        """The most masked tokens in a row of the batch, in pre-training: in a sequence, or in a pack."""
        most = self.packing.max_predictions_per_pack if self.packing.is_on else self.max_predictions_per_seq
        assert most is not None, "derived for packs"
        return most

    @property
    def samples_per_update(self) -> int:
        """The global batch, in rows: samples, or packs if sequences are packed."""
        return self.global_batch.micro_batch_size * self.global_batch.micro_batches


@lru_cache(maxsize=None)
def leaves() -> Dict[str, Leaf]:
    """Return every leaf field by dotted name, in the schema's order (``extends`` and ``about`` left out)."""
    return {item.name: item for item in walk(TrainingConfig, (), "Run") if isinstance(item, Leaf)}


@lru_cache(maxsize=None)
def sections() -> Dict[str, SectionInfo]:
    """Return every section by dotted name; the config itself is ``""``."""
    items = [item for item in walk(TrainingConfig, (), "Run") if isinstance(item, SectionInfo)]
    return {".".join(item.path): item for item in items}
