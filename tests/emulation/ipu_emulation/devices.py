"""Puts the emulated machine in the place of the device, its driver and the ops library.

TensorFlow knows no device of type IPU here: what is placed on one goes to the CPU, and what would be compiled for one
goes to the interpreter. A graph that is being traced counts as being on the IPU.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import os
import sys
import types
from typing import Any

import tensorflow as tf
from tensorflow.compiler.plugin.poplar import ops as plugin
from tensorflow.python.eager import context, def_function
from tensorflow.python.framework import errors, load_library, ops

from ipu_emulation.eager import also_eager
from ipu_emulation.host_ops import HostOps
from ipu_emulation.interpreter import Interpreter
from ipu_emulation.machine import Machine

PREFIX = "tensorflow.compiler.plugin.poplar.ops.gen_"
NO_KERNEL = "<no registered kernels>"


class OpModule(types.ModuleType):
    """One of the modules that Bazel generates from op registrations: host ops are emulated, others are real."""

    def __init__(self, name: str, host: HostOps, library: Any, interpreter: Interpreter):
        super().__init__(name)
        self._host, self._library, self._interpreter = host, library, interpreter

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._host, name, None) or also_eager(getattr(self._library, name), self._interpreter)


class OpModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives ``gen_*_ops`` to whoever imports them."""

    def __init__(self, machine: Machine, interpreter: Interpreter):
        self._host, self._interpreter = HostOps(machine), interpreter
        self._library = load_library.load_op_library(os.path.join(plugin.__path__[0], "libpoplar_ops.so"))

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return importlib.machinery.ModuleSpec(name, self) if name.startswith(PREFIX) else None

    def create_module(self, spec: Any) -> OpModule:
        return OpModule(spec.name, self._host, self._library, self._interpreter)

    def exec_module(self, module: Any) -> None:
        pass


def install(machine: Machine) -> None:
    """Before anything imports Graphcore's packages."""
    interpreter = Interpreter(machine)
    sys.meta_path.insert(0, OpModules(machine, interpreter))
    _place_on_cpu()
    _interpret_programs(interpreter)
    _adapt_strategies()
    _add_keras_ipu()
    _listen_for_replicas(machine)


def _place_on_cpu() -> None:
    original = ops.device

    def device(name: Any) -> Any:
        return original("/device:CPU:0" if isinstance(name, str) and "IPU" in name else name)

    ops.device = device


def _interpret_programs(interpreter: Interpreter) -> None:
    original = def_function.Function.__call__

    def call(function: Any, *arguments: Any, **named: Any) -> Any:
        if not (context.executing_eagerly() and function._jit_compile):
            try:
                return original(function, *arguments, **named)
            except (errors.InvalidArgumentError, errors.NotFoundError) as problem:
                if not context.executing_eagerly() or NO_KERNEL not in str(problem):  # it is refused before it begins
                    raise
        return interpreter.run(function.get_concrete_function(*arguments, **named), [arguments, named])

    def_function.Function.__call__ = call


def _adapt_strategies() -> None:
    """Strategies ask TensorFlow for names of devices, which are the CPU's here."""
    from tensorflow.python.ipu import ipu_strategy
    from tensorflow.python.ipu.distributed import popdist_strategy

    for module in (ipu_strategy, popdist_strategy):
        module._is_current_device_ipu = lambda: not context.executing_eagerly()
    original = popdist_strategy.PopDistExtendedV1.__init__

    def init(extended: Any, *arguments: Any, **named: Any) -> None:
        original(extended, *arguments, **named)
        with tf.device("/device:CPU:0"):
            extended._variable_device = tf.constant(0).device

    popdist_strategy.PopDistExtendedV1.__init__ = init


def _add_keras_ipu() -> None:
    """``tf.keras.ipu``, which stock TensorFlow's generated modules lack."""
    import keras.ipu

    for name in ("tensorflow.keras", "keras.api._v2.keras"):  # tf.keras is the latter until somebody imports the former
        importlib.import_module(name).ipu = sys.modules[f"{name}.ipu"] = keras.ipu


def _listen_for_replicas(machine: Machine) -> None:
    from keras.ipu.extensions import extensions_base

    extension = extensions_base.KerasExtensionBase
    original = extension._get_replication_factor

    def get(self: Any) -> int:
        machine.replicas = original(self)
        machine.counts.set("replicas", machine.replicas)
        return machine.replicas

    extension._get_replication_factor = get
