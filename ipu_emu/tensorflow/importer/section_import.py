"""Section import: a section of a trace as a graph of the emulator, with its inputs and outputs."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ipu_emu.compiler.gradients.gradient import Gradient
from ipu_emu.errors import UnsupportedError
from ipu_emu.graph import Graph, Role, StepPhase, Tensor
from ipu_emu.ops import Value
from ipu_emu.tensorflow.importer.axis_order import Axes, order_axes_as_read
from ipu_emu.tensorflow.importer.graph_writer import GraphWriter, StepPosition
from ipu_emu.tensorflow.importer.importer import Importer
from ipu_emu.tensorflow.importer.node import SourceNode
from ipu_emu.tensorflow.importer.op_placement import OpPlacement
from ipu_emu.tensorflow.importer.values import Held, Imported, Known, Variable, device_dtype
from ipu_emu.tensorflow.trace.function_trace import FunctionTrace, Section, held_by, is_resource


@dataclass
class SectionWork:
    """A section with its ops in order, the tensors that it exports, and those that it imports."""

    section: Section
    exports: dict[str, Any] = field(default_factory=dict)
    ops: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class Outfeed:
    """An enqueue op: for every array of an element, the id of a tensor or a known value, and its type on the host.

    ``in_update``: an element is enqueued once for each weight update instead of each micro-batch. ``when``: the id of
    whether a branch enqueues the element.
    """

    queue: Any
    arrays: tuple[Any, ...]
    dtypes: tuple[Any, ...]
    in_update: bool = False
    when: str | None = None


@dataclass
class ImportedSection:
    """``inputs`` maps tensors that the host sets before a run to their sources; ``infeeds`` maps queues to
    the ids of their arrays, None for those that are not used; ``carried`` has name, initial and last tensor of each
    value that a loop carries; ``exports`` has an id or a known value for each tensor that is read later; ``axes`` are
    those of variables that are stored in another order, by the ids of their tensors.
    """

    section: Section
    graph: Graph
    gradients: tuple[Gradient, ...]
    inputs: dict[str, Any]
    infeeds: list[tuple[Any, list[str | None]]]
    outfeeds: list[Outfeed]
    carried: list[tuple[str, Any]]
    exports: dict[str, Any]
    variables: dict[str, Variable]
    assigned: list[str]
    axes: dict[str, Axes]


def import_section(
    trace: FunctionTrace, work: SectionWork, known: dict[str, Any], *, replicas: int, norm_group: int
) -> ImportedSection:
    """Import a section; ``known`` has the values of tensors that earlier sections computed when they were built."""
    return _SectionImport(trace, work, known, replicas, norm_group).run()


class _SectionImport:
    def __init__(
        self, trace: FunctionTrace, work: SectionWork, known: dict[str, Any], replicas: int, norm_group: int
    ) -> None:
        self.trace, self.work, self.section, self.known = trace, work, work.section, known
        self.replicas = replicas
        self.writer = GraphWriter(norm_group=norm_group)
        self.importer = Importer(self.writer, self.marked)
        self.placement = OpPlacement(trace, work.section, work.ops, self.importer)
        self.captured = {inner.name: outer for outer, inner in trace.captures()}
        self.inputs: dict[str, Any] = {}
        self.infeeds: dict[tuple[int, int], tuple[Any, dict[int, str]]] = {}
        self.outfeeds: list[Outfeed] = []
        self.gradients: list[Gradient] = []
        self.starts = {carried.start.name: number for number, carried in enumerate(self.section.carried)}

    def run(self) -> ImportedSection:
        values, index = self.importer.values, self.placement.index
        for op in self.work.ops:
            for tensor in op.inputs:
                if tensor.name not in values and not self.section.holds(index[tensor.op.name]):
                    values[tensor.name] = self.outside_value(tensor)
            self.importer.run(op, self.placement.place(op))
        exports = {name: self.export(tensor) for name, tensor in self.work.exports.items()}
        self.carry()
        variables = self.writer.variables()
        assigned = self.writer.write_variables()
        read = [*exports.values(), *(array for outfeed in self.outfeeds for array in outfeed.arrays)]
        return ImportedSection(
            self.section,
            self.writer.graph,
            tuple(self.gradients),
            self.inputs,
            [(queue, [ids.get(number) for number in range(max(ids) + 1)]) for queue, ids in self.infeeds.values()],
            self.outfeeds,
            [(f"carried/{number}", carried.initial) for number, carried in enumerate(self.section.carried)],
            exports,
            variables,
            assigned,
            order_axes_as_read(self.writer.graph, self.gradients, [id for id in read if isinstance(id, str)]),
        )

    # Values from outside

    def outside_value(self, tensor: Any) -> Imported:
        """A tensor of an earlier section, or an input of the function."""
        if tensor.name in self.known:
            return Known(self.known[tensor.name])
        if tensor.name in self.captured and is_resource(tensor):
            return self.variable(self.captured[tensor.name])
        return self.input(tensor)

    def variable(self, handle: Any) -> Variable:
        """A resource variable by its handle."""
        name, (kind, shape) = self.trace.name_of(handle), held_by(handle)
        if not shape.is_fully_defined():
            raise UnsupportedError(f"The variable {name} has the shape {shape}; give it fixed sizes")
        return Variable(name, device_dtype(kind.as_numpy_dtype), tuple(int(size) for size in shape.as_list()))

    def input(self, tensor: Any) -> Held:
        """A tensor that the host sets before each run."""
        shape = _static_shape(tensor)
        id = f"input/{tensor.name}"
        if id not in self.writer.graph.tensors:
            kind = device_dtype(tensor.dtype.as_numpy_dtype)
            self.writer.graph.add(Tensor(id, kind, shape, Role.SCALAR), np.zeros(shape, kind.numpy))
            self.inputs[id] = tensor
        return Held(self.writer.value(self.writer.graph.tensor(id)))

    # Marked ops

    def marked(self, op: Any, inputs: list[Imported]) -> list[Any] | None:
        """Import an op with a marker, or a placeholder; gradients in branches and inner loops are not accumulated."""
        inner = op.graph is not self.trace.graph
        marker = self.trace.inner_marker(op) if inner else self.trace.markers.get(op.name)
        if marker is None and not inner and op.type == "Placeholder":
            return [self.outside_value(op.outputs[0])]
        if marker is None or (inner and marker.kind in ("total", "checkpoint")):
            return None
        return list(getattr(self, f"mark_{marker.kind}")(self.importer.node(op, inputs), marker.data))

    def mark_carried(self, node: SourceNode, data: Any) -> list[Any]:
        """The start of an iteration: a variable of the loop."""
        start = node.op.outputs[0]
        variable = self.loop_variable(start, self.starts[start.name])
        return [self.writer.read(variable)]

    def loop_variable(self, start: Any, number: int) -> Variable:
        kind = device_dtype(start.dtype.as_numpy_dtype)
        return Variable(f"carried/{number}", kind, _static_shape(start))

    def mark_infeed(self, node: SourceNode, data: Any) -> list[Any]:
        queue, number, use = data
        tensor, graph = node.op.outputs[0], self.writer.graph
        ids = self.infeeds.setdefault((id(queue), use), (queue, {}))[1]
        if number not in ids:
            ids[number] = f"infeed/{len(self.infeeds) - 1}/{number}"
            kind = device_dtype(tensor.dtype.as_numpy_dtype)
            graph.add(Tensor(ids[number], kind, _static_shape(tensor), Role.INPUT))
        return [self.writer.value(graph.tensor(ids[number]))]

    def mark_outfeed(self, node: SourceNode, data: Any) -> list[Any]:
        arrays = tuple(self.anchored(value) for value in node.inputs)
        kinds = tuple(tensor.dtype.as_numpy_dtype for tensor in node.op.inputs)
        in_update = self.writer.position.phase is StepPhase.UPDATE and self.section.accumulation > 1
        when = None
        for condition in self.writer.conditions:
            when = condition if when is None else when.op("And", condition)
        condition_id = None if when is None else self.writer.copied(when).tensor.id
        self.outfeeds.append(Outfeed(data, arrays, kinds, in_update, condition_id))
        return []

    def anchored(self, operand: Imported) -> Any:
        """The id of a tensor that the host can read after every micro-batch, or a known array."""
        if isinstance(operand, Known):
            return operand.array
        if not isinstance(operand, Held):
            raise UnsupportedError("An outfeed takes tensors; enqueue the values of variables, not the variables")
        value = self.writer.plain(operand)
        # Each anchor has a tensor of its own: neither an input or a variable, nor a view of either.
        return self.writer.copied(value).tensor.id

    def export(self, tensor: Any) -> Any:
        value = self.importer.values.get(tensor.name)
        if value is None:
            value = self.outside_value(tensor)
        if isinstance(value, Held):
            self.writer.position = self.placement.positions.get(tensor.op.name, StepPosition())
        return self.anchored(value)

    def carry(self) -> None:
        """Assign the last values of an iteration to the variables of the loop."""
        values = self.importer.values
        ends = [values.get(carried.end.name) or self.outside_value(carried.end) for carried in self.section.carried]
        for number, (carried, end) in enumerate(zip(self.section.carried, ends, strict=True)):
            variable = self.loop_variable(carried.start, number)
            self.writer.position = self.placement.positions.get(carried.end.op.name, StepPosition())
            if isinstance(end, Known):
                value = self.writer.constant(end.array)
            else:
                assert isinstance(end, Held)
                value = self.writer.plain(end)
            if value.tensor.dtype is not variable.dtype:
                value = value.op("Cast", to=variable.dtype.onnx)
            self.writer.assign(variable, value)

    # Gradients

    def mark_total(self, node: SourceNode, data: Any) -> list[Any]:
        """Import the sum or mean of a gradient over the micro-batches of a batch."""
        writer, section = self.writer, self.section
        part = node.value(0)
        if section.accumulation > 1 and section.reduction == "MEAN":
            part = part * (1.0 / section.accumulation)
        dtype = part.tensor.dtype if data is None else device_dtype(data)
        if section.accumulation == 1 and dtype is not part.tensor.dtype:
            part = part.op("Cast", to=dtype.onnx)
        part = self.own_part(part)
        alone = (1, 1) if self.replicas > 1 else None
        if section.accumulation == 1:
            writer.graph.tensors[part.tensor.id] = replace(part.tensor, group=alone)
            total = writer.graph.tensor(part.tensor.id)
        else:
            name = writer.graph.unused(f"{node.op.name}/total")
            total = writer.graph.add(Tensor(name, dtype, part.tensor.shape, Role.COMPUTED, alone))
        self.gradients.append(Gradient("", part.tensor.id, total.id))
        return [writer.value(total)]

    def own_part(self, part: Value) -> Value:
        """``part`` if it is the result of an op and of no other gradient, else a copy."""
        used = {gradient.part for gradient in self.gradients}
        if part.tensor.role is Role.CONSTANT:
            return self.writer.own(part)
        if part.tensor.role is not Role.COMPUTED or part.tensor.id in used:
            return self.writer.copied(part)
        return part

    # Replicas

    def mark_cross_replica(self, node: SourceNode, data: Any) -> list[Any]:
        """Import the sum or mean over replicas; those of gradients are merged."""
        mean, size = data
        if self.replicas == 1:
            return [node.inputs[0]]
        if size is not None and self.replicas % size:
            raise UnsupportedError(
                f"replica_group_size is {size}, and there are {self.replicas} replicas; use a size that divides them"
            )
        value = node.value(0)
        graph, count = self.writer.graph, size or self.replicas
        group = None if size in (None, self.replicas) else (1, size)
        if all(gradient.total != value.tensor.id for gradient in self.gradients):
            attributes: dict[str, Any] = {"__replicas": self.replicas, "__collectiveOperator": 1 if mean else 0}
            if group is not None:
                attributes["__collectiveCommGroup"] = [1, size]
            return [self.writer.copied(value).op("ReplicatedAllReduce", **attributes)]
        graph.tensors[value.tensor.id] = replace(graph.tensor(value.tensor.id), group=group)
        total = self.writer.value(graph.tensor(value.tensor.id))
        running = self.section.reduction == "RUNNING_MEAN" and self.section.accumulation > 1
        if mean != running:
            return [total * (1.0 / count if mean else float(count))]
        return [total]

    def mark_replication_index(self, node: SourceNode, data: Any) -> list[Any]:
        """Import the index of the replica: a constant that differs between replicas."""
        id, graph, alone = "replication_index", self.writer.graph, self.replicas == 1
        if id not in graph.tensors:
            numbers = np.arange(self.replicas, dtype=np.int32)
            tensor = Tensor(id, device_dtype(np.int32), (), Role.CONSTANT, group=None if alone else (1, 1))
            graph.add(tensor, numbers[0] if alone else numbers)
        value = self.writer.value(graph.tensor(id))
        return [value if alone else self.writer.own(value)]

    def mark_replication_factor(self, node: SourceNode, data: Any) -> list[Any]:
        return [Known(np.asarray(self.replicas, np.int32))]

    def mark_print(self, node: SourceNode, data: Any) -> list[Any]:
        """Print the tensor in each micro-batch."""
        operand = node.inputs[0]
        if isinstance(operand, Known):
            print(f"{data}: {operand.array}", file=sys.stderr)
            return []
        node.value(0).op("PrintTensor", title=str(data))
        return []

    def mark_recurrence(self, node: SourceNode, data: Any) -> list[Any]:
        """Import a recurrent layer, given the products of all its inputs, as the emulator's op."""
        values = [node.of(value) for value in node.inputs]
        return list(self.writer.apply("Recurrence", values, dict(data), len(node.op.outputs)))

    def mark_recurrence_gradient(self, node: SourceNode, data: Any) -> list[Any]:
        states, attributes = data
        values = [node.of(value) for value in node.inputs]
        absent = values[0].like(0.0)
        values[3 + states : 3 + states] = [absent, absent]
        settings = {**attributes, "with_lengths": 0, "with_peepholes": 0}
        return list(self.writer.apply("RecurrenceGrad", values, settings, 4 + states))[: 3 + states]

    def mark_checkpoint(self, node: SourceNode, data: Any) -> list[Any]:
        return [node.inputs[0]]


def _static_shape(tensor: Any) -> tuple[int, ...]:
    shape = tensor.shape
    if not shape.is_fully_defined():
        raise UnsupportedError(
            f"{tensor.name} has the shape {shape}, and a program for the IPU needs fixed sizes; give the placeholder "
            "or the data set a shape without open dimensions"
        )
    return tuple(int(size) for size in shape.as_list())
