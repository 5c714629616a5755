"""The losses of one training in one number format.

G samples · B micro batch
"""

from __future__ import annotations

from benchmarks.curve_data import Samples
from data_utils.records.arrays import ArrayReader
from data_utils.records.features import pretraining_features
from data_utils.records.pipeline import training_dataset
from execution.interface import OptimizerSettings, Update
from execution.software.platform import SoftwarePlatform
from execution.software.precision import Numerics
from keras_extensions.backend import keras
from keras_extensions.callbacks.reporting import PerExecutionMetrics
from keras_extensions.schedules import UpDown
from model.architecture import PRETRAINING, Architecture, expected_blocks
from model.bert import assemble
from model.conversion import convert
from model.huggingface import untrained
from model.losses import PretrainingObjective
from optimization.loss_scaling import INITIAL_SCALE

VOCABULARY, SEED = 30528, 1984
TINY = Architecture(
    vocab_size=VOCABULARY,
    hidden_size=128,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=512,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    initializer_range=0.06,  # about 0.7 / √H, which suits so small a model
)


def curve(
    samples: Samples, steps: int, micro_batch: int, learning_rate: float, precision: str, at_random: bool
) -> list[float]:
    """Masked-LM plus next-sentence loss of each update, with AdamW, warm-up over a tenth, linear decay.

    Args:
        samples: name → (G, …), used once, in order.
        steps: weight updates, each on the next B samples.
        precision: of weights and computation.
        at_random: round weights stochastically.
    """
    numerics = Numerics(precision, stochastic_rounding=at_random)
    platform = SoftwarePlatform(SEED, xla=True, recompute=False, numerics=numerics)
    source = untrained(PRETRAINING, TINY, SEED)
    with platform.scope():
        blocks, conversion = convert(PRETRAINING, source, TINY, platform)
    length, predictions = samples["input_ids"].shape[1], samples["masked_lm_ids"].shape[1]
    stages = [expected_blocks(PRETRAINING, TINY.num_hidden_layers)]
    shapes = pretraining_features(length, predictions, TINY.vocab_size).shapes
    model = assemble(blocks, shapes, ("masked_lm", "next_sentence"), stages, platform)
    conversion.carry_weights(source)
    optimizer = platform.optimizer(OptimizerSettings("AdamW", UpDown(learning_rate, steps, 0.1)))
    update = Update(1, loss_scale=INITIAL_SCALE, adaptive_loss_scale=True)
    platform.compile(model, optimizer, PretrainingObjective(), update, 1)
    data = training_dataset(
        ArrayReader(pretraining_features(length, predictions, VOCABULARY), samples),
        micro_batch_size=micro_batch,
        micro_batches_per_update=1,
        seed=SEED,
        num_updates=steps,
        shuffle=False,
    )
    losses: list[float] = []
    collect = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda _, logs: losses.append(float(logs["mlm_loss"] + logs["nsp_loss"]))
    )
    platform.fit(model, data, steps, [PerExecutionMetrics(), collect])
    return losses
