"""Poplar's ops that are called outside of programs: each becomes a program of one op, which runs at once."""

from __future__ import annotations

import functools
from typing import Any, Callable

import tensorflow as tf
from tensorflow.python.eager import context, execute
from tensorflow.python.framework import func_graph

from ipu_emulation.interpreter import Interpreter, attributes_of


def also_eager(function: Callable[..., Any], interpreter: Interpreter) -> Callable[..., Any]:
    """Make the function of an op, which can only be put into graphs, fit for calls with values; tapes record them."""

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        if not context.executing_eagerly():
            return function(*arguments, **named)
        given = [tf.convert_to_tensor(a) if isinstance(a, tf.Variable) else a for a in _flat(arguments, named)]
        places = [place for place, argument in enumerate(given) if isinstance(argument, tf.Tensor)]

        def traced(*tensors: tf.Tensor) -> Any:
            filled = list(given)
            for place, tensor in zip(places, tensors):
                filled[place] = tensor
            inner, inner_named = tf.nest.pack_sequence_as([arguments, named], filled)
            return function(*inner, **inner_named)

        values = [given[place] for place in places]
        graph = func_graph.func_graph_from_py_func(
            function.__name__, traced, values, {}, add_control_dependencies=False
        )
        op = graph.get_operations()[-1]
        graph.outputs = [*op.inputs, *op.outputs]
        results = interpreter.values(graph, [*values, *graph.external_captures])
        inputs, outputs = results[: len(op.inputs)], results[len(op.inputs) :]
        execute.record_gradient(op.type, inputs, attributes_of(op), outputs)
        return tf.nest.pack_sequence_as(graph.structured_outputs, outputs)

    return call


def _flat(arguments: Any, named: Any) -> Any:
    return tf.nest.flatten([arguments, named])
