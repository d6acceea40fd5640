"""Section import: a section of a trace as a graph of the emulator, with its inputs and outputs."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ipu_emu.compiler.gradients.gradient import Gradient
from ipu_emu.errors import UnsupportedError
from ipu_emu.graph import Graph, Place, Role, StepPhase, Tensor
from ipu_emu.ops import Value
from ipu_emu.tensorflow.importer.axis_order import Axes, order_axes_as_read
from ipu_emu.tensorflow.importer.importer import Importer, StepPosition
from ipu_emu.tensorflow.importer.node import SourceNode
from ipu_emu.tensorflow.importer.values import Held, Imported, Known, Variable, device_dtype
from ipu_emu.tensorflow.trace.function_trace import FunctionTrace, Marker, Section, held_by, is_resource

_ORDER = (StepPhase.FORWARD, StepPhase.BACKWARD, StepPhase.UPDATE)
#: Ops that TensorFlow creates for the backward pass, and that the forward pass writes to.
_EMPTY = ("EmptyTensorList", "TensorListReserve", "Const")
#: Ops whose values are on the IPU of their readers.
_UNPLACED = ("Placeholder", "Const")


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
        self.index = {op.name: number for number, op in enumerate(trace.graph.get_operations())}
        self.importer = Importer(self.position, self.marked, replicas=replicas, norm_group=norm_group)
        self.captured = {inner.name: outer for outer, inner in trace.captures()}
        self.inputs: dict[str, Any] = {}
        self.infeeds: dict[tuple[int, int], tuple[Any, dict[int, str]]] = {}
        self.outfeeds: list[Outfeed] = []
        self.starts = {carried.start.name: number for number, carried in enumerate(self.section.carried)}
        self.totals: dict[str, int] = {}
        self.where: dict[str, StepPosition] = {}
        self.has_totals = any(
            marker.kind == "total" for op in work.ops if (marker := trace.markers.get(op.name)) is not None
        )

    def run(self) -> ImportedSection:
        importer = self.importer
        for op in self.work.ops:
            for tensor in op.inputs:
                if tensor.name not in importer.values and not self.holds(tensor.op):
                    importer.values[tensor.name] = self.outside_value(tensor)
            importer.run([op])
        exports = {name: self.export(tensor) for name, tensor in self.work.exports.items()}
        self.carry()
        names = {state.variable.name: state.variable for state in importer.variables.values()}
        assigned = importer.write_variables()
        read = [*exports.values(), *(array for outfeed in self.outfeeds for array in outfeed.arrays)]
        return ImportedSection(
            self.section,
            importer.graph,
            tuple(importer.gradients),
            self.inputs,
            [(queue, [ids.get(number) for number in range(max(ids) + 1)]) for queue, ids in self.infeeds.values()],
            self.outfeeds,
            [(f"carried/{number}", carried.initial) for number, carried in enumerate(self.section.carried)],
            exports,
            names,
            assigned,
            order_axes_as_read(importer.graph, importer.gradients, [id for id in read if isinstance(id, str)]),
        )

    def holds(self, op: Any) -> bool:
        return self.section.holds(self.index[op.name])

    # Values from outside

    def outside_value(self, tensor: Any) -> Imported:
        """A tensor of an earlier section, or an input of the function."""
        if tensor.name in self.known:
            return Known(self.known[tensor.name])
        if tensor.name in self.captured:
            return self.captured_value(tensor)
        return self.input(tensor)

    def captured_value(self, tensor: Any) -> Imported:
        if is_resource(tensor):
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
        if id not in self.importer.graph.tensors:
            kind = device_dtype(tensor.dtype.as_numpy_dtype)
            self.importer.graph.add(Tensor(id, kind, shape, Role.SCALAR), np.zeros(shape, kind.numpy))
            self.inputs[id] = tensor
        return Held(self.importer.value(self.importer.graph.tensor(id)))

    # Placement of ops

    def position(self, op: Any) -> StepPosition:
        position = self.find_position(op)
        self.where[op.name] = position
        return position

    def find_position(self, op: Any) -> StepPosition:
        phase = self.phase(op)
        if phase is StepPhase.UPDATE:
            return StepPosition(phase, self.update_place(op))
        place = self.pipeline_place(op, phase) if self.section.pipeline else Place(0, self.shard(op))
        return StepPosition(phase, place)

    def phase(self, op: Any) -> StepPhase:
        index = self.index[op.name]
        if op.type in _EMPTY:
            return StepPhase.FORWARD
        phases = [self.where[t.op.name].phase for t in op.inputs if t.op.name in self.where]
        if self.has_totals and any(first <= index < end for first, end in self.section.updates):
            return StepPhase.UPDATE
        if op.type in ("ReadVariableOp", "ResourceGather") and self.has_totals:
            value = self.importer.values.get(op.inputs[0].name)
            state = self.importer.variables.get(value.name) if isinstance(value, Variable) else None
            if state is not None and state.assigned is not None and state.assigned.phase is StepPhase.UPDATE:
                return StepPhase.UPDATE
        marker = self.trace.markers.get(op.name)
        if marker is not None and marker.kind == "total":
            return StepPhase.BACKWARD
        totals = any(self.is_total(tensor) for tensor in op.inputs)
        least = (
            StepPhase.UPDATE if totals else StepPhase.BACKWARD if op._original_op is not None else StepPhase.FORWARD
        )
        return max([least, *phases], key=_ORDER.index)

    def is_total(self, tensor: Any) -> bool:
        marker = self.trace.markers.get(tensor.op.name)
        return marker is not None and marker.kind == "total"

    def shard(self, op: Any) -> int:
        """The IPU of an op: that of the op whose gradient it computes, or of its scope, or of its inputs."""
        source = op
        while source._original_op is not None and source._original_op.name in self.index:
            source = source._original_op
        shards = self.trace.shard_of(self.index[source.name])
        if shards is not None:
            return shards[0]
        return max((self.where[t.op.name].place.ipu for t in op.inputs if t.op.name in self.where), default=0)

    def pipeline_place(self, op: Any, phase: StepPhase) -> Place:
        pipeline = self.section.pipeline
        assert pipeline is not None
        source = op
        while source._original_op is not None and source._original_op.name in self.index:
            source = source._original_op
        index = self.index[source.name]
        entry = next((span for span in pipeline.ranges if span[0] <= index < span[1]), None)
        if entry is not None:
            _, _, stage, ipu = entry
            return Place(stage, self.shard(op) if stage in pipeline.sharded else ipu)
        if pipeline.by_inputs and source is not op and source.name in self.where:
            return self.where[source.name].place
        if phase is StepPhase.FORWARD:
            return self.free_place(op, index) if pipeline.by_inputs else _place(pipeline.ranges[-1])
        return self.backward_place(op)

    def free_place(self, op: Any, index: int) -> Place:
        """The place of an op outside stages: that of its variable, or the last of those of its inputs."""
        assert self.section.pipeline is not None
        ranges = self.section.pipeline.ranges
        for tensor in op.inputs:
            value = self.importer.values.get(tensor.name)
            home = self.importer.home_of(value.name) if isinstance(value, Variable) else None
            if home is not None:
                return home
        read = [t.op for t in op.inputs if t.op.name in self.where and t.op.type not in _UNPLACED]
        if read:
            return max(self.where[source.name].place for source in read)
        return _place(ranges[0] if index < min(first for first, *_ in ranges) else ranges[-1])

    def backward_place(self, op: Any) -> Place:
        """The place of a gradient without a recorded forward op: the earliest stage of the gradients it reads."""
        read = [self.where[t.op.name] for t in op.inputs if t.op.name in self.where]
        back = [position.place for position in read if position.phase is not StepPhase.FORWARD]
        fore = [position.place for position in read if position.phase is StepPhase.FORWARD]
        if back and fore:
            return min(*back, max(fore))
        if back or fore:
            return min(back) if back else max(fore)
        assert self.section.pipeline is not None
        last = self.section.pipeline.ranges[-1]
        return Place(last[2], last[3])

    def update_place(self, op: Any) -> Place:
        """The place of the variable that an update changes, else that of its inputs."""
        for tensor in op.inputs:
            value = self.importer.values.get(tensor.name)
            home = self.importer.home_of(value.name) if isinstance(value, Variable) else None
            if home is not None:
                return home
        return next((self.where[t.op.name].place for t in op.inputs if t.op.name in self.where), Place())

    # Marked ops

    def marked(self, op: Any, inputs: list[Imported]) -> list[Any] | None:
        """Import an op with a marker, or a placeholder."""
        if op.graph is not self.trace.graph:
            return self.marked_in_branch(op, inputs)
        if op.type == "Placeholder" and op.name not in self.trace.markers:
            return [self.outside_value(op.outputs[0])]
        marker = self.trace.markers.get(op.name)
        if marker is None:
            return None
        return list(getattr(self, f"mark_{marker.kind}")(op, inputs, marker))

    def marked_in_branch(self, op: Any, inputs: list[Imported]) -> list[Any] | None:
        """Import an op of a branch or of an inner loop with a marker; gradients there are not accumulated."""
        marker = self.trace.inner_marker(op)
        if marker is None or marker.kind in ("total", "checkpoint"):
            return None
        return list(getattr(self, f"mark_{marker.kind}")(op, inputs, marker))

    def mark_carried(self, op: Any, inputs: list[Imported], marker: Marker) -> list[Any]:
        """The start of an iteration: a variable of the loop."""
        start = op.outputs[0]
        variable = self.loop_variable(start, self.starts[start.name])
        return [self.importer.read(variable)]

    def loop_variable(self, start: Any, number: int) -> Variable:
        kind = device_dtype(start.dtype.as_numpy_dtype)
        return Variable(f"carried/{number}", kind, _static_shape(start))

    def mark_infeed(self, op: Any, inputs: list[Imported], marker: Marker) -> list[Any]:
        queue, number, use = marker.data
        tensor, graph = op.outputs[0], self.importer.graph
        ids = self.infeeds.setdefault((id(queue), use), (queue, {}))[1]
        if number not in ids:
            ids[number] = f"infeed/{len(self.infeeds) - 1}/{number}"
            kind = device_dtype(tensor.dtype.as_numpy_dtype)
            graph.add(Tensor(ids[number], kind, _static_shape(tensor), Role.INPUT))
        return [self.importer.value(graph.tensor(ids[number]))]

    def mark_outfeed(self, op: Any, inputs: list[Imported], marker: Marker) -> list[Any]:
        arrays = tuple(self.anchored(value) for value in inputs)
        kinds = tuple(tensor.dtype.as_numpy_dtype for tensor in op.inputs)
        in_update = self.importer.position.phase is StepPhase.UPDATE and self.section.accumulation > 1
        when = None
        for condition in self.importer.conditions:
            when = condition if when is None else when.op("And", condition)
        condition_id = None if when is None else self.importer.copied(when).tensor.id
        self.outfeeds.append(Outfeed(marker.data, arrays, kinds, in_update, condition_id))
        return []

    def anchored(self, operand: Imported) -> Any:
        """The id of a tensor that the host can read after every micro-batch, or a known array."""
        if isinstance(operand, Known):
            return operand.array
        if not isinstance(operand, Held):
            raise UnsupportedError("An outfeed takes tensors; enqueue the values of variables, not the variables")
        value = self.importer.plain(operand)
        # Each anchor has a tensor of its own: neither an input or a variable, nor a view of either.
        return self.importer.copied(value).tensor.id

    def export(self, tensor: Any) -> Any:
        value = self.importer.values.get(tensor.name)
        if value is None:
            value = self.outside_value(tensor)
        if isinstance(value, Held):
            self.importer.position = self.where.get(tensor.op.name, StepPosition())
        return self.anchored(value)

    def carry(self) -> None:
        """Assign the last values of an iteration to the variables of the loop."""
        values = self.importer.values
        ends = [values.get(carried.end.name) or self.outside_value(carried.end) for carried in self.section.carried]
        for number, (carried, end) in enumerate(zip(self.section.carried, ends, strict=True)):
            variable = self.loop_variable(carried.start, number)
            self.importer.position = self.where.get(carried.end.op.name, StepPosition())
            if isinstance(end, Known):
                value = self.importer.constant(end.array)
            else:
                assert isinstance(end, Held)
                value = self.importer.plain(end)
            if value.tensor.dtype is not variable.dtype:
                value = value.op("Cast", to=variable.dtype.onnx)
            self.importer.assign(variable, value)

    # Gradients

    def mark_total(self, op: Any, inputs: list[Imported], marker: Marker) -> list[Any]:
        """Import the sum or mean of a gradient over the micro-batches of a batch."""
        importer, section = self.importer, self.section
        node = SourceNode(op, inputs, importer)
        part = node.of(inputs[0])
        if section.accumulation > 1 and section.reduction == "MEAN":
            part = part * (1.0 / section.accumulation)
        dtype = part.tensor.dtype if marker.data is None else device_dtype(marker.data)
        if section.accumulation == 1 and dtype is not part.tensor.dtype:
            part = part.op("Cast", to=dtype.onnx)
        part = self.own_part(part)
        alone = (1, 1) if self.replicas > 1 else None
        if section.accumulation == 1:
            importer.graph.tensors[part.tensor.id] = replace(part.tensor, group=alone)
            total = importer.graph.tensor(part.tensor.id)
        else:
            name = importer.graph.unused(f"{op.name}/total")
            total = importer.graph.add(Tensor(name, dtype, part.tensor.shape, Role.COMPUTED, alone))
        self.totals[total.id] = len(importer.gradients)
        importer.gradients.append(Gradient("", part.tensor.id, total.id))
        return [importer.value(total)]

    def own_part(self, part: Value) -> Value:
        """``part`` if it is the result of an op and of no other gradient, else a copy."""
        used = {gradient.part for gradient in self.importer.gradients}
        if part.tensor.role is Role.CONSTANT:
            return self.importer._own(part)
        if part.tensor.role is not Role.COMPUTED or part.tensor.id in used:
            return self.importer.copied(part)
        return part

    # Replicas

    def mark_cross_replica(self, op: Any, inputs: list[Imported], marker: Marker) -> list[Any]:
        """Import the sum or mean over replicas; those of gradients are merged."""
        mean, size = marker.data
        if self.replicas == 1:
            return [inputs[0]]
        if size is not None and self.replicas % size:
            raise UnsupportedError(
                f"replica_group_size is {size}, and there are {self.replicas} replicas; use a size that divides them"
            )
        node = SourceNode(op, inputs, self.importer)
        value = node.of(inputs[0])
        graph, count = self.importer.graph, size or self.replicas
        group = None if size in (None, self.replicas) else (1, size)
        if value.tensor.id not in self.totals:
            attributes: dict[str, Any] = {"__replicas": self.replicas, "__collectiveOperator": 1 if mean else 0}
            if group is not None:
                attributes["__collectiveCommGroup"] = [1, size]
            return [self.importer.copied(value).op("ReplicatedAllReduce", **attributes)]
        graph.tensors[value.tensor.id] = replace(graph.tensor(value.tensor.id), group=group)
        total = self.importer.value(graph.tensor(value.tensor.id))
        running = self.section.reduction == "RUNNING_MEAN" and self.section.accumulation > 1
        if mean != running:
            return [total * (1.0 / count if mean else float(count))]
        return [total]

    def mark_replication_index(self, op: Any, inputs: list[Imported], marker: Marker) -> list[Any]:
        """Import the index of the replica: a constant that differs between replicas."""
        id = "replication_index"
        graph = self.importer.graph
        if id not in graph.tensors:
            numbers = np.arange(self.replicas, dtype=np.int32)
            kind = device_dtype(np.int32)
            if self.replicas == 1:
                graph.add(Tensor(id, kind, (), Role.CONSTANT), numbers[0])
            else:
                graph.add(Tensor(id, kind, (), Role.CONSTANT, group=(1, 1)), numbers)
        value = self.importer.value(graph.tensor(id))
        if self.replicas == 1:
            return [value]
        return [self.importer._own(value)]

    def mark_replication_factor(self, op: Any, inputs: list[Imported], marker: Marker) -> list[Any]:
        return [Known(np.asarray(self.replicas, np.int32))]

    def mark_print(self, op: Any, inputs: list[Imported], marker: Marker) -> list[Any]:
        """Print the tensor in each micro-batch."""
        operand = inputs[0]
        if isinstance(operand, Known):
            print(f"{marker.data}: {operand.array}", file=sys.stderr)
            return []
        value = SourceNode(op, inputs, self.importer).of(operand)
        value.op("PrintTensor", title=str(marker.data))
        return []

    def mark_recurrence(self, op: Any, inputs: list[Imported], marker: Marker) -> list[Any]:
        """Import a recurrent layer, given the products of all its inputs, as the emulator's op."""
        node = SourceNode(op, inputs, self.importer)
        values = [node.of(value) for value in inputs]
        return list(self.importer.apply("Recurrence", values, dict(marker.data), len(op.outputs)))

    def mark_recurrence_gradient(self, op: Any, inputs: list[Imported], marker: Marker) -> list[Any]:
        node, (states, attributes) = SourceNode(op, inputs, self.importer), marker.data
        values = [node.of(value) for value in inputs]
        absent = values[0].like(0.0)
        values[3 + states : 3 + states] = [absent, absent]
        settings = {**attributes, "with_lengths": 0, "with_peepholes": 0}
        return list(self.importer.apply("RecurrenceGrad", values, settings, 4 + states))[: 3 + states]

    def mark_checkpoint(self, op: Any, inputs: list[Imported], marker: Marker) -> list[Any]:
        return [inputs[0]]


def _place(span: tuple[int, int, int, int]) -> Place:
    """The place of a range of ops."""
    return Place(span[2], span[3])


def _static_shape(tensor: Any) -> tuple[int, ...]:
    shape = tensor.shape
    if not shape.is_fully_defined():
        raise UnsupportedError(
            f"{tensor.name} has the shape {shape}, and a program for the IPU needs fixed sizes; give the placeholder "
            "or the data set a shape without open dimensions"
        )
    return tuple(int(size) for size in shape.as_list())
