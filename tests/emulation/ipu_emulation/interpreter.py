"""Runs programs that were made for IPUs, op by op, all replicas of this process side by side.

A value is a list of R tensors, one for each replica. Variables are there once, for replicas keep them alike.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context, execute
from tensorflow.python.framework import tensor_shape, tensor_util

from ipu_emulation.counts import every_op, function_graph, inputs_of
from ipu_emulation.kernels import KERNELS
from ipu_emulation.machine import Machine

Value = List[tf.Tensor]


class Node(NamedTuple):
    """An op, with what is slow to ask it for."""

    op: Any
    type: str
    inputs: Tuple[int, ...]
    outputs: Tuple[int, ...]


class Round:
    """The micro batches up to an update.

    Attributes:
        sums: gradient accumulators by name.
        updates: the ResourceUpdates that come at the end, with their inputs; one for all variables, or one for each.
    """

    def __init__(self) -> None:
        self.sums: Dict[str, Value] = {}
        self.micro_batch = 0
        self.updates: Dict[Any, List[Value]] = {}

    @property
    def length(self) -> int:
        """Micro batches after which the update comes; 0: never."""
        return next((int(inputs[0][0]) for inputs in self.updates.values()), 0)


class Interpreter:
    def __init__(self, machine: Machine):
        self._machine = machine
        self._nodes: Dict[Any, List[Node]] = {}
        self._constants: Dict[Any, Any] = {}
        self._attributes: Dict[Any, Tuple[Any, ...]] = {}
        self._special = {
            "Const": self._constant, "ExecutionCounter": self._execution_counter, "Pipeline": self._pipeline,
            "While": self._while, "StatelessWhile": self._while, "ResourceUpdate": self._resource_update,
            "PopDatastreamInfeedDequeue": self._dequeue, "PopDatastreamOutfeedEnqueue": self._enqueue,
            "IpuCrossReplicaSum": self._cross_replica_sum, "IpuCrossReplicaMean": self._cross_replica_mean,
            "GradientAccumulatorCreate": self._accumulator, "GradientAccumulatorCreateFromShape": self._accumulator,
            "GradientAccumulatorAddWithScale": self._accumulate,
        }  # fmt: skip
        callers = {"Function": "to_apply", "PipelineStage": "to_apply", "PipelineStageBackward": "to_apply"}
        self._callers = {**callers, "PartitionedCall": "f", "StatefulPartitionedCall": "f"}

    def run(self, function: Any, arguments: Sequence[Any]) -> Any:
        """A concrete function's result, None where programs are only made."""
        counts = self._machine.counts
        if function.graph not in self._nodes:
            counts.program(function.graph)
            self._nodes_of(function.graph)
        if not self._machine.executes:
            return None
        counts.add("executions")
        own = [a.handle if isinstance(a, tf.Variable) else a for a in tf.nest.flatten(arguments)]
        inputs = [tf.convert_to_tensor(a) for a in own if isinstance(a, (tf.Tensor, np.ndarray))]
        return function._build_call_outputs(self.values(function.graph, [*inputs, *function.captured_inputs]))

    def values(self, graph: Any, inputs: Sequence[tf.Tensor]) -> List[tf.Tensor]:
        """The values of a graph's outputs on the first replica; all get the same inputs."""
        results = self._graph(graph, [[value] * self._machine.replicas for value in inputs], Round())
        return [value[0] for value in results]

    def _nodes_of(self, graph: Any) -> List[Node]:
        if graph not in self._nodes:
            self._nodes[graph] = [
                Node(op, op.type, tuple(id(t) for t in inputs_of(op)), tuple(id(t) for t in op.outputs))
                for op in graph.get_operations()
            ]
        return self._nodes[graph]

    def _graph(self, graph: Any, inputs: Sequence[Value], now: Round) -> List[Value]:
        """Values of a graph's outputs, from those of its inputs."""
        if len(graph.inputs) != len(inputs):
            raise ValueError(f"{graph.name} has {len(graph.inputs)} inputs, got {len(inputs)}")
        values = {id(tensor): value for tensor, value in zip(graph.inputs, inputs)}
        for node in self._nodes_of(graph):
            if node.outputs and node.outputs[0] in values:
                continue
            results = self._node(node, [values[name] for name in node.inputs], now)
            values.update(zip(node.outputs, results))
        return [values[id(tensor)] for tensor in graph.outputs]

    def _node(self, node: Node, inputs: List[Value], now: Round) -> List[Value]:
        if node.type in self._special:
            return self._special[node.type](node.op, inputs, now)
        if node.type in self._callers:
            return self._graph(self._called(node.op, self._callers[node.type]), inputs, now)
        replicas = range(self._machine.replicas)
        if not node.outputs and any(tensor.dtype == tf.resource for tensor in node.op.inputs):
            replicas = range(1)  # an assignment
        results = [self._one(node, [value[replica] for value in inputs]) for replica in replicas]
        return [list(value) for value in zip(*results)]

    def _one(self, node: Node, inputs: List[tf.Tensor]) -> List[tf.Tensor]:
        """Outputs of an op for one replica."""
        if node.type in KERNELS:
            return KERNELS[node.type](node.op, inputs)
        if node.op not in self._attributes:
            self._attributes[node.op] = attributes_of(node.op)
        name, outputs = node.type.encode(), len(node.outputs)
        return list(execute.execute(name, outputs, inputs, self._attributes[node.op], context.context()) or [])

    def _called(self, op: Any, attribute: str) -> Any:
        return function_graph(op.graph, op.node_def.attr[attribute].func.name)

    # Loops

    def _pipeline(self, op: Any, inputs: List[Value], now: Round) -> List[Value]:
        """All stages for one micro batch after another, which no schedule changes; first input: micro batches."""
        body = self._called(op, "to_apply")
        for _ in range(op.get_attr("repeat_count")):
            now = Round()
            for now.micro_batch in range(int(inputs[0][0])):
                self._graph(body, inputs, now)
                self._count_micro_batch(now)
            self._update(now)
        return []

    def _while(self, op: Any, inputs: List[Value], outer: Round) -> List[Value]:
        condition, body = self._called(op, "cond"), self._called(op, "body")
        fed = any(inner.type == "PopDatastreamInfeedDequeue" for inner in every_op(body))
        values, now = inputs, (Round() if fed else outer)
        while bool(self._graph(condition, values, now)[0][0]):
            values = self._graph(body, values, now)
            if not fed:
                continue
            self._count_micro_batch(now)
            now.micro_batch += 1
            if now.micro_batch == now.length:
                self._update(now)
                now = Round()
        return values

    def _count_micro_batch(self, now: Round) -> None:
        name = "micro_batches" if now.updates else "predicted_micro_batches"
        self._machine.counts.add(name, self._machine.replicas)

    def _resource_update(self, op: Any, inputs: List[Value], now: Round) -> List[Value]:
        now.updates[op] = inputs
        return [[None] * self._machine.replicas for _ in op.outputs]

    def _update(self, now: Round) -> None:
        for op, inputs in now.updates.items():
            self._graph(self._called(op, "to_apply"), inputs, now)
        self._machine.counts.add("updates", bool(now.updates))

    # Queues and counters

    def _dequeue(self, op: Any, inputs: List[Value], now: Round) -> List[Value]:
        name = op.get_attr("feed_id").decode()
        elements = [self._machine.infeeds.next(name) for _ in range(self._machine.replicas)]
        return [list(value) for value in zip(*elements)]

    def _enqueue(self, op: Any, inputs: List[Value], now: Round) -> List[Value]:
        self._machine.outfeeds.put(op.get_attr("feed_id").decode(), list(zip(*inputs)))
        return []

    def _execution_counter(self, op: Any, inputs: List[Value], now: Round) -> List[Value]:
        return [[tf.constant(now.micro_batch)] * self._machine.replicas]

    def _constant(self, op: Any, inputs: List[Value], now: Round) -> List[Value]:
        if op not in self._constants:
            array = tensor_util.MakeNdarray(op.node_def.attr["value"].tensor)
            self._constants[op] = tf.constant(array, dtype=op.outputs[0].dtype)
        return [[self._constants[op]] * self._machine.replicas]

    # Gradients

    def _accumulator(self, op: Any, inputs: List[Value], now: Round) -> List[Value]:
        if op.name not in now.sums:
            shape = inputs[0][0].shape if op.type == "GradientAccumulatorCreate" else op.outputs[0].shape
            now.sums[op.name] = [tf.zeros(shape, op.outputs[0].dtype)] * self._machine.replicas
        return [now.sums[op.name]]

    def _accumulate(self, op: Any, inputs: List[Value], now: Round) -> List[Value]:
        """Accumulator (…), gradient (…), scale () → accumulator × scale + gradient (…)."""
        summed = [
            old * tf.cast(scale, old.dtype) + tf.cast(gradient, old.dtype) for old, gradient, scale in zip(*inputs)
        ]
        now.sums[op.inputs[0].op.name] = summed
        return [summed]

    def _cross_replica_sum(self, op: Any, inputs: List[Value], now: Round) -> List[Value]:
        self._machine.counts.add("sums_executed")
        parts = self._machine.exchange.all(op.name, tf.add_n(inputs[0]).numpy())
        return [[tf.add_n([tf.constant(part) for part in parts])] * self._machine.replicas]

    def _cross_replica_mean(self, op: Any, inputs: List[Value], now: Round) -> List[Value]:
        import popdist

        [total] = self._cross_replica_sum(op, inputs, now)
        number = self._machine.replicas * popdist.getNumInstances()
        return [[value / number for value in total]]


def attributes_of(op: Any) -> Tuple[Any, ...]:
    """An op's attributes as eager execution takes them: name, value, name, value, …"""
    items = [(name, _plain(value)) for name, value in op.node_def.attr.items() if not name.startswith("_")]
    return tuple(part for item in items for part in item)


def _plain(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "shape":
        return tensor_shape.TensorShape(value.shape)
    if kind != "list":
        return getattr(value, kind)
    [*filled] = [getattr(value.list, name) for name in ("s", "i", "f", "b", "type") if len(getattr(value.list, name))]
    return list(filled[0]) if filled else [tensor_shape.TensorShape(shape) for shape in value.list.shape]
