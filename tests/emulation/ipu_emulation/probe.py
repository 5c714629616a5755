"""Says what the environment holds."""

import keras
import tensorflow as tf
from ipu_tensorflow_addons.keras.optimizers import lamb_optimizer  # noqa: F401 (its import is the test)
from tensorflow.compiler.plugin.poplar.ops import gen_functional_ops
from tensorflow.python import ipu

strategy, op = type(ipu.ipu_strategy.IPUStrategyV1()).__name__, gen_functional_ops.pipeline.__name__
print(f"TensorFlow {tf.__version__}, Keras {keras.__version__}, {strategy}, {op} op registered")
