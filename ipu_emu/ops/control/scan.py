"""Scan: its body is inlined once for each slice of its inputs.

opset 9     (states, scanned inputs), each sliced along its scan axis
opset 8     (lengths, states, scanned inputs), all with a leading batch axis: one scan per sample, then stacked

The results of the iterations are stacked along a new axis. In a scan of PopART's they are concatenated along an axis
that they have, and the slices of a vector have one element.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Op
from ipu_emu.graph.body_inputs import CONCATENATES
from ipu_emu.ops.control.inlining import Inliner, body_of, body_output_types, check_inputs, inlined_op, stacked
from ipu_emu.ops.core import Node, OutputTypes, Rewrite

#: The first opset without a batch axis.
_UNBATCHED = 9


def _axes(node: Node, name: str, count: int) -> list[int]:
    return list(node.attribute(name, [])) or [0] * count


def _shape(node: Node) -> OutputTypes:
    body, scanned = body_of(node, "body"), int(node.attribute("num_scan_inputs", 0))
    batched = node.op.version < _UNBATCHED
    if batched and node.has_input(0):
        raise node.fail("a scan of opset 8 with sequence lengths is not supported; leave input 0 out")
    states = len(node.inputs) - scanned - batched
    check_inputs(node, body, states + scanned)
    types = body_output_types(body)
    if batched:
        samples, length = node.input(len(node.inputs) - 1).shape[:2]
        rows = [(dtype, (samples, length, *shape)) for dtype, shape in types[states:]]
        return [(dtype, (samples, *shape)) for dtype, shape in types[:states]] + rows
    length = _length(node, states, scanned)
    axes = _axes(node, "scan_output_axes", len(types) - states)
    collected = _longer if _concatenates(node) else _with_axis
    outputs = [
        (dtype, collected(shape, axis, length)) for (dtype, shape), axis in zip(types[states:], axes, strict=True)
    ]
    return types[:states] + outputs


def _with_axis(shape: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    place = axis + len(shape) + 1 if axis < 0 else axis
    return (*shape[:place], size, *shape[place:])


def _longer(shape: tuple[int, ...], axis: int, count: int) -> tuple[int, ...]:
    place = axis % len(shape) if shape else 0
    return (*shape[:place], count * shape[place], *shape[place + 1 :]) if shape else (count,)


def _concatenates(node: Node) -> bool:
    return bool(node.attribute(CONCATENATES, 0))


def _length(node: Node, states: int, scanned: int) -> int:
    axes = _axes(node, "scan_input_axes", scanned)
    lengths = [node.input(states + i).shape[axis] for i, axis in enumerate(axes)]
    different = [length for length in lengths if length != lengths[0]]
    if different:
        raise EmulatorError(
            f"[ScanOp] Number of iterations required by the inputs do not match: {lengths[0]} {different[0]}"
        )
    if not lengths:
        raise node.fail("there is no scanned input; give one, or use a loop")
    return lengths[0]


class _Scan:
    """Unrolls the scan of one sample."""

    def __init__(self, rewrite: Rewrite, node: Node) -> None:
        self.node, self.body = node, node.op.attributes["body"]
        self.rewrite, self.inliner = rewrite, Inliner(rewrite)
        self.scanned = int(self.node.attribute("num_scan_inputs", 0))
        self.outputs = len(self.body.outputs) - len(self.body.inputs) + self.scanned
        old = "directions" if node.op.version < _UNBATCHED else "scan_input_directions"
        self.backwards = _axes(self.node, old, self.scanned)

    def run(self, states: Sequence[str], inputs: Sequence[str], axes: Sequence[int], length: int) -> list[str]:
        """The final states, then the collected outputs."""
        count, rows = len(states), []
        for i in range(length):
            slices = [
                self.slice(id, length - 1 - i if back else i, axis)
                for id, axis, back in zip(inputs, axes, self.backwards, strict=True)
            ]
            results = self.inliner.inline(self.body, [*states, *slices])
            states = results[:count]
            rows.append(results[count:])
        turned = _axes(self.node, "scan_output_directions", self.outputs)
        columns = [
            column[::-1] if back else column for column, back in zip(zip(*rows, strict=True), turned, strict=True)
        ]
        again = [list(row) for row in zip(*columns, strict=True)]
        if _concatenates(self.node):
            return [*states, *map(self.concatenated, columns, _axes(self.node, "scan_output_axes", self.outputs))]
        return [*states, *stacked(self.rewrite, again, self.places())]

    def slice(self, id: str, index: int, axis: int) -> str:
        part = self.rewrite.op("Gather", id, self.rewrite.constant(np.array(index)), axis=axis)
        vector = _concatenates(self.node) and len(self.rewrite.graph.tensor(id).shape) == 1
        return self.rewrite.op("ReshapeTo", part, shape=[1]) if vector else part

    def concatenated(self, column: Sequence[str], axis: int) -> str:
        rank = len(self.rewrite.graph.tensor(column[0]).shape)
        rows = column if rank else [self.rewrite.op("ReshapeTo", id, shape=[1]) for id in column]
        return self.rewrite.op("Concat", *rows, axis=axis % max(rank, 1))

    def places(self) -> list[int]:
        """The axes along which outputs are collected."""
        axes = _axes(self.node, "scan_output_axes", self.outputs)
        ids = self.body.outputs[len(self.body.outputs) - self.outputs :]
        return [
            axis + len(self.body.tensor(id).shape) + 1 if axis < 0 else axis
            for axis, id in zip(axes, ids, strict=True)
        ]


def _scan(rewrite: Rewrite, node: Node) -> None:
    scan, inputs = _Scan(rewrite, node), node.op.inputs
    if node.op.version < _UNBATCHED:
        scan.inliner.name(_of_samples(scan, node.op))
        return
    count = len(inputs) - scan.scanned
    axes = _axes(node, "scan_input_axes", scan.scanned)
    scan.inliner.name(scan.run(inputs[:count], inputs[count:], axes, _length(node, count, scan.scanned)))


def _of_samples(scan: _Scan, op: Op) -> list[str]:
    samples, length = scan.node.input(len(op.inputs) - 1).shape[:2]
    results = []
    for sample in range(samples):
        own = [scan.slice(id, sample, 0) for id in op.inputs[1:]]
        count = len(own) - scan.scanned
        results.append(scan.run(own[:count], own[count:], [0] * scan.scanned, length))
    return stacked(scan.rewrite, results, [0] * len(scan.body.outputs))


OPS = [inlined_op("Scan", (1, None), _shape, _scan)]
