"""The sections of a config for the model and the machine: sizes, batch, optimizer, IPU system, execution."""

from __future__ import annotations

from typing import Optional, Union

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import Annotated, Literal

from pipeline.section import PipelineDevices  # room: pipeline
from settings.fields import (
    MAY_CHANGE,
    PER_PROCESS,
    BelowOne,
    Count,
    Devices,
    Equivalent,
    Fraction,
    Layers,
    LossScale,
    LossScaleWord,
    NonNegative,
    PathText,
    Positive,
    Proportions,
    Size,
    Stages,
    Workers,
)

# Sizes that the weights determine. The vocabulary's is apart from them, because its tables can be resized.
FIXED_SIZES = (
    "hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size", "max_position_embeddings",
    "type_vocab_size",
)  # fmt: skip
SIZES = (*FIXED_SIZES, "vocab_size")


class Section(BaseModel):
    """Base of all config objects: unknown keys are refused, values never converted, and nothing changes later."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())


class BertConfig(Section):
    """Architecture of the model; optional if weights determine it, see bert_config."""

    hidden_size: Size = Field(768, description="Width of the encoder, a multiple of num_attention_heads.")
    vocab_size: Size = Field(30522, description="Number of word pieces, a multiple of embedding_serialization_factor.")
    num_attention_heads: Size = Field(12, description="Attention heads per encoder layer.")
    num_hidden_layers: Layers = Field(12, description="Number of encoder layers (blocks named hid).")
    intermediate_size: Size = Field(3072, description="Width of the feed-forward layer.")
    hidden_dropout_prob: BelowOne = Field(0.1, description="Dropout probability of hidden states and embeddings.")
    attention_probs_dropout_prob: BelowOne = Field(0.1, description="Dropout probability of attention weights.")
    max_position_embeddings: Size = Field(512, description="Longest sequence the model has positions for, in tokens.")
    type_vocab_size: Size = Field(2, description="Number of token types (segments).")
    initializer_range: Positive = Field(
        0.02, description="Standard deviation of the truncated normal that initial weights are drawn from."
    )
    layer_norm_eps: Positive = Field(1e-12, description="Number added to the variance in LayerNorm.")
    position_embedding_type: Literal["absolute"] = Field(
        "absolute", description="Kind of position embedding; learned absolute positions are the only kind."
    )
    hidden_act: Literal["gelu", "gelu_new", "relu", "silu", "tanh", "sigmoid"] = Field(
        "gelu", description="Activation: gelu is exact (erf), gelu_new the tanh approximation."
    )


class GlobalBatch(Section):
    """Samples per weight update = micro_batch_size × replicas × grad_acc_steps_per_replica."""

    micro_batch_size: Size = Field(1, description="Samples of one forward and backward pass on one replica.")
    replicas: Count = Field(
        1,
        description="Copies of the model that train in parallel on shares of the batch. On stock TensorFlow any number "
        "of processes shares the replicas × grad_acc_steps_per_replica micro batches evenly.",
    )
    grad_acc_steps_per_replica: Count = Field(
        1,
        description="Micro batches whose gradients a replica accumulates before an update; with several "
        "pipeline stages a multiple of 2 × stages (grouped schedule) or of stages (interleaved).",
    )

    @property
    def micro_batches(self) -> int:
        """The micro batches of a weight update, over all replicas."""
        return self.replicas * self.grad_acc_steps_per_replica

    @property
    def lowered(self) -> str:
        """The field to lower for smaller batches: the micro batch, unless several are accumulated."""
        field = "grad_acc_steps_per_replica" if self.grad_acc_steps_per_replica > 1 else "micro_batch_size"
        return f"global_batch.{field}"


class LearningRate(Section):
    """Learning-rate schedule."""

    schedule_name: Literal["linear", "up_down", "constant", "cosine", "polynomial"] = Field(
        "linear",
        description="Schedule after the linear warm-up to max_learning_rate: linear falls to 0, up_down does so as "
        "Graphcore's program (an update later, and at least 1e-7), cosine in half a period of a cosine, polynomial by "
        "power; constant stays.",
    )
    power: Positive = Field(
        1.0,
        description="With schedule_name polynomial: the rate is max_learning_rate × (remaining share of the updates "
        "after the warm-up) to this power.",
    )
    max_learning_rate: Positive = Field(1e-4, description="Learning rate at the end of the warm-up.")
    warmup_frac: Fraction = Field(0.1, description="Warm-up as a fraction of all updates, 0 to 1.")
    reference_global_batch: Optional[Count] = Field(
        None,
        description="Linear scaling rule: max_learning_rate applies to this global batch (samples) and is "
        "multiplied by global batch / reference_global_batch. Unset: no scaling.",
    )


class OptimizerOptions(Section):
    """Optimizer and its constants."""

    name: Literal["LAMB", "AdamW", "Muon"] = Field(
        "LAMB",
        description="Optimizer. Muon orthogonalizes the updates of the dense matrices of encoder, pooler and masked-LM "
        "head, with AdamW's learning rate and decay; AdamW updates the other weights. Not on IPUs.",
    )
    muon_scale: Optional[Positive] = Field(
        None,
        description="With Muon: spectral norm of a matrix's update at a learning rate of 1, before decay. Unset: 0.2 × "
        "√max(rows, columns), which gives updates the root mean square of AdamW's.",
    )
    weight_decay_rate: NonNegative = Field(0.01, description="Decoupled weight decay λ, which decay_rule defines.")
    decay_rule: Annotated[Optional[Literal["usual", "published"]], Equivalent((None, "usual"))] = Field(
        None,
        description="usual: an update takes learning rate × λ × weight from the matrices, and nothing from biases and "
        "LayerNorm. published, as Graphcore's program: AdamW takes λ × weight from all variables, whatever the "
        "learning rate; LAMB decays LayerNorm's gains, too. Unset: published on IPUs, and for LAMB with the "
        "schedule up_down; otherwise usual.",
    )
    loss_scaling: Annotated[Union[LossScale, Literal["auto"], None], LossScaleWord] = Field(
        None,
        description="Factor on the loss before the backward pass, so that small gradients survive in float16; auto: "
        "halved when gradients overflow, doubled after 2,000 updates without; null or none: no scaling.",
    )
    beta_1: BelowOne = Field(0.9, description="Decay of the first moment; that of Muon's matrices is always 0.95.")
    beta_2: BelowOne = Field(0.999, description="Decay of the second moment.")
    epsilon: Positive = Field(1e-6, description="Number added to the root of the second moment.")
    max_gradient_norm: Optional[Positive] = Field(
        None, description="Clip the global norm of the gradients to this. Unset: no clipping."
    )
    gradient_accumulation_reduction: Annotated[
        Optional[Literal["mean", "sum", "running_mean"]], Equivalent((None, "mean", "running_mean"))
    ] = Field(
        None,
        description="How the gradients of micro batches are combined: mean and running_mean give the mean (the running "
        "mean never becomes a large sum, which matters in float16), sum their sum. Unset: running_mean on IPUs, mean "
        "elsewhere.",
    )
    learning_rate: LearningRate = Field(default_factory=LearningRate, description="Learning-rate schedule.")


class IpuConfig(Section):
    """Pipeline and IPU settings. On stock TensorFlow the IPUs are mapped to the available devices."""

    pipeline_stages: Annotated[Optional[Stages], MAY_CHANGE] = Field(
        None,
        description="The blocks of the model, in order, split into stages; each stage a list of block "
        'names or one text such as "hid hid". Unset: one stage with all blocks.',
    )
    pipeline_device_mapping: Annotated[Optional[Devices], MAY_CHANGE] = Field(
        None,
        description="IPU (counted from 0) of each stage. Unset: one IPU per stage, the heads on that of the embedding.",
    )
    matmul_available_memory_proportion_per_pipeline_stage: Annotated[Optional[Proportions], MAY_CHANGE] = Field(
        None,
        description="Share of In-Processor-Memory that matrix products may use for temporaries, one per IPU, "
        "each in (0, 1]. Unset: the compiler's default.",
    )
    replicated_tensor_sharding: Annotated[bool, MAY_CHANGE] = Field(
        False,
        description="Keep 1/replicas of the optimizer state on each replica (on stock TensorFlow, in each process); "
        "on IPUs it needs optimizer_state_offchip.",
    )
    pipeline_schedule: Annotated[Literal["grouped", "interleaved", "sequential"], MAY_CHANGE] = Field(
        "grouped",
        description="Order in which stages take micro batches. On IPUs interleaved needs an IPU for each stage.",
    )


class Execution(Section):
    """Where and how the run executes."""

    platform: Annotated[Literal["auto", "software", "graphcore"], MAY_CHANGE] = Field(
        "auto", description="Graphcore's TensorFlow or stock TensorFlow (software); auto takes what is installed."
    )
    device: Annotated[Literal["auto", "cpu", "gpu"], MAY_CHANGE] = Field(
        "auto", description="Device of the software platform; auto takes a GPU if there is one."
    )
    xla: Annotated[Optional[bool], MAY_CHANGE] = Field(
        None, description="Compile each micro batch's computation with XLA. Unset: chosen by a measured rule."
    )
    pipeline_devices: PipelineDevices = None  # room: pipeline
    precision: Annotated[Literal["auto", "float32", "float16", "bfloat16", "mixed_bfloat16"], MAY_CHANGE] = Field(
        "auto",
        description="Number format of weights and computation; mixed_bfloat16: float32 weights, bfloat16 computation. "
        "Moments, updates, norms and losses are always float32. auto: float16 on IPUs; elsewhere mixed_bfloat16 where "
        "the hardware computes faster in bfloat16, else float16 on GPUs with tensor cores, otherwise float32.",
    )
    threads: Annotated[Optional[Workers], PER_PROCESS] = Field(
        None, description="CPU threads to compute with. Unset: all cores."
    )
    parallel_micro_batches: Annotated[bool, PER_PROCESS] = Field(
        False,
        description="Whether a CPU computes all micro batches of an update at the same time, each with its share of "
        "the threads. Operations of small models gain little from several threads, so one micro batch a core is "
        "faster there. A process needs memory for the activations of all of them.",
    )
    executable_cache: Annotated[Optional[PathText], PER_PROCESS] = Field(
        "auto", description="Folder in which compiled programs are kept for later runs. auto or unset: not kept."
    )
