"""Recurrent layers: RNN, GRU and LSTM over a sequence, in one or both directions.

    X [T, N, I]   W [D, gates H, I]   R [D, gates H, H]   B [D, 2 gates H]   ->   Y [T, D, N, H], the last state(s)

Each op expands to one Recurrence per direction, between a product of all inputs with W at once and a concatenation.
With layout 1 the batch comes first: X [N, T, I], Y [N, T, D, H], states [N, D, H].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ipu_emu.errors import EmulatorError
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.core import Node, OutputTypes, Rewrite, expanded_op, flops
from ipu_emu.ops.recurrence.gate_functions import FUNCTIONS
from ipu_emu.ops.recurrence.recurrent_cells import CELLS

#: Indices of inputs.
_X, _W, _R, _B, _LENGTHS, _FIRST, _PEEPHOLES = 0, 1, 2, 3, 4, 5, 7
_KEPT = ("clip", "linear_before_reset", "input_forget")
#: Cells in which the biases of input and recurrent products are added: their sum saves a pass over all steps.
_ONE_BIAS = ("LSTM", "RNN")


def _batch_first(node: Node) -> bool:
    return bool(node.attribute("layout", 0))


def _sizes(node: Node) -> tuple[int, int, int, int]:
    """(T, N, directions, H), checked."""
    cell, x, w, r = CELLS[node.op.type], node.input(_X), node.input(_W), node.input(_R)
    directions = 2 if node.attribute("direction", "forward") == "bidirectional" else 1
    if x.rank != 3 or w.rank != 3 or r.rank != 3:
        raise node.fail(f"data must be [T, N, I] and weights [D, gates H, I], found {x}, {w}, {r}")
    hidden = r.shape[2]
    if w.shape != (directions, cell.gates * hidden, x.shape[2]) or r.shape[:2] != w.shape[:2]:
        raise node.fail(f"weights {w} and {r} do not fit {x} in {directions} directions")
    t, n = x.shape[1::-1] if _batch_first(node) else x.shape[:2]
    if node.has_input(_LENGTHS) and node.input(_LENGTHS).shape != (n,):
        raise node.fail(f"{node.input(_LENGTHS)} must have one length for each of {n} sequences")
    _names(node, directions)
    state = (n, directions, hidden) if _batch_first(node) else (directions, n, hidden)
    for index in range(_FIRST, _FIRST + cell.states):
        if node.has_input(index) and node.input(index).shape != state:
            raise node.fail(f"{node.input(index)} must be the first state of {state}")
    return t, n, directions, hidden


def _names(node: Node, directions: int) -> list[list[str]]:
    """The functions of each direction."""
    defaults = list(CELLS[node.op.type].defaults)
    names = [name.lower() for name in node.attribute("activations", [])] or defaults * directions
    if len(names) == 1 and len(defaults) > 1 and directions == 1:
        names = [*defaults[:1], *names * (len(defaults) - 1)]
    for spelled, name in zip(node.attribute("activations", []), names, strict=False):
        if name not in FUNCTIONS:
            of = "" if node.op.type == "LSTM" else f" for {node.described}"
            raise EmulatorError(
                f"Activation type '{spelled}' is not supported{of}", note=f"There are {', '.join(FUNCTIONS)}"
            )
    if node.op.type == "LSTM" and len(names) not in (len(defaults) * directions, 1):
        raise EmulatorError(f"Too many activations ({len(names)}) specified. Number of activations should be 1 or 3.")
    if len(names) < len(defaults) * directions:
        raise node.fail(
            f"activations {names} were given; use {len(defaults)} of {', '.join(FUNCTIONS)} per direction"
        )
    return [names[i * len(defaults) : (i + 1) * len(defaults)] for i in range(directions)]


def _numbers(node: Node, parameter: str, direction: int, names: list[list[str]]) -> list[float]:
    """The values of ``parameter`` (alpha or beta) for one direction; earlier directions take theirs first."""
    values = list(node.attribute(f"activation_{parameter}", []))
    taken = sum(parameter in FUNCTIONS[name][0].parameters for row in names[:direction] for name in row)
    return values[taken:]


def _shape(node: Node) -> OutputTypes:
    t, n, directions, hidden = _sizes(node)
    dtype, states = node.input(_X).dtype, CELLS[node.op.type].states
    y, last = (t, directions, n, hidden), (directions, n, hidden)
    if _batch_first(node):
        y, last = (n, t, directions, hidden), (n, directions, hidden)
    return [(dtype, y)] + [(dtype, last)] * states


class _Direction:
    """Appends the ops of one direction of a network."""

    def __init__(self, node: Node, rewrite: Rewrite, direction: int) -> None:
        self.node, self.rewrite, self.direction = node, rewrite, direction
        self.t, self.n, self.directions, self.hidden = _sizes(node)
        self.cell = CELLS[node.op.type]
        self.wide = self.cell.gates * self.hidden

    def part(self, index: int, low: int = 0, high: int | None = None) -> str:
        """The part of an optional input that belongs to this direction; zeros where it was left out."""
        if not self.node.has_input(index):
            shape = (self.wide,) if index == _B else (self.n, self.hidden)
            return self.rewrite.constant(np.zeros(shape, self.node.input(_X).dtype.numpy))
        axis = 1 if _batch_first(self.node) and index >= _FIRST and index != _PEEPHOLES else 0
        sizes = list(self.node.input(index).shape)
        place: dict[str, Any] = {"starts": [self.direction], "ends": [self.direction + 1], "axes": [axis]}
        source = self.node.op.inputs[index]
        if self.directions > 1:  # with one direction the input is its own part, and its weights are read in place
            source = self.rewrite.op("Slice", source, **place)
        flat = self.rewrite.op("ReshapeTo", source, shape=sizes[:axis] + sizes[axis + 1 :])
        return flat if high is None else self.rewrite.op("Slice", flat, starts=[low], ends=[high], axes=[0])

    def written(self, x: str) -> list[str]:
        """Append the ops; return the states of all time steps, then the final ones."""
        names, node = _names(self.node, self.directions), self.node
        products = self.rewrite.op("MatMulT", x, self.part(_W), transB=1)
        first, bias = self.part(_B, 0, self.wide), self.part(_B, self.wide, 2 * self.wide)
        if node.op.type in _ONE_BIAS:
            bias = self.rewrite.op("Add", first, bias)
        else:
            products = self.rewrite.op("Add", products, first)
        states = [self.part(_FIRST + index) for index in range(self.cell.states)]
        lengths = node.op.inputs[_LENGTHS] if node.has_input(_LENGTHS) else ""
        peepholes = self.part(_PEEPHOLES) if node.has_input(_PEEPHOLES) else ""
        attributes = {name: node.op.attributes[name] for name in _KEPT if name in node.op.attributes} | {
            "cell": node.op.type,
            "reverse": int(self.direction == 1 or node.attribute("direction", "forward") == "reverse"),
            "activations": names[self.direction],
            "activation_alpha": _numbers(node, "alpha", self.direction, names),
            "activation_beta": _numbers(node, "beta", self.direction, names),
        }
        operands = (products, self.part(_R), bias, *states, lengths, peepholes)
        y = self.rewrite.op("Recurrence", *operands, outputs=1 + self.cell.states, **attributes)
        return [y, *(f"{y}/{index}" for index in range(1, 1 + self.cell.states))]


def _expand(rewrite: Rewrite, node: Node) -> None:
    t, n, directions, hidden = _sizes(node)
    first = _batch_first(node)
    x = rewrite.op("Transpose", node.op.inputs[_X], perm=[1, 0, 2]) if first else node.op.inputs[_X]
    results = [_Direction(node, rewrite, direction).written(x) for direction in range(directions)]
    for index, output in enumerate(node.op.outputs):
        axis, shape = (1, [t, 1, n, hidden]) if index == 0 else (0, [1, n, hidden])
        if directions == 1 and not first:
            rewrite.op("ReshapeTo", results[0][index], into=output, shape=shape)
            continue
        parts = [rewrite.op("ReshapeTo", result[index], shape=shape) for result in results]
        if not first:
            rewrite.op("Concat", *parts, into=output, axis=axis)
            continue
        joined = rewrite.op("Concat", *parts, axis=axis)
        rewrite.op("Transpose", joined, into=output, perm=[2, 0, 1, 3] if index == 0 else [1, 0, 2])


def _work(node: Node) -> int:
    return 2 * node.input(_X).nelms * node.input(_W).shape[1] + 2 * node.outputs[0].nelms * node.input(_R).shape[1]


# The LSTM of aiGraphcore, in terms of ONNX's


#: Indices of ONNX's gates input, output, forget, new.
_GATES = [1, 3, 0, 2]


def _graphcore_sizes(node: Node) -> tuple[int, int, int, int]:
    """(T, N, I, H), checked."""
    x, w = node.input(0), node.input(1)
    if x.rank != 3 or w.rank != 3 or w.shape != (4, x.shape[2] + w.shape[2], w.shape[2]):
        raise node.fail(f"data must be [T, N, I] and weights [4, I + H, H], found {x} and {w}")
    (t, n, i), h = x.shape, w.shape[2]
    for index, shape in ((2, (4, h)), (3, (2, n, h)), (4, (n,))):
        if node.has_input(index) and node.input(index).shape != shape:
            raise node.fail(f"{node.input(index)} must have shape {list(shape)}")
    return t, n, i, h


def _graphcore_shape(node: Node) -> OutputTypes:
    t, n, _, h = _graphcore_sizes(node)
    dtype = node.input(0).dtype
    return [(dtype, (t, n, h) if node.attribute("outputFullSequence", 1) else (n, h)), (dtype, (n, h))]


def _graphcore_expand(rewrite: Rewrite, node: Node) -> None:
    t, n, i, h = _graphcore_sizes(node)

    def part(id: str, low: int, high: int, axis: int, shape: list[int]) -> str:
        return rewrite.op("ReshapeTo", rewrite.op("Slice", id, starts=[low], ends=[high], axes=[axis]), shape=shape)

    order = rewrite.constant(np.array(_GATES))
    gates = rewrite.op("Gather", rewrite.op("Transpose", node.op.inputs[1], perm=[0, 2, 1]), order, axis=0)
    inputs = [node.op.inputs[0], part(gates, 0, i, 2, [1, 4 * h, i]), part(gates, i, i + h, 2, [1, 4 * h, h])]
    if node.has_input(2):
        biases = rewrite.op("ReshapeTo", rewrite.op("Gather", node.op.inputs[2], order, axis=0), shape=[1, 4 * h])
        zeros = rewrite.constant(np.zeros((1, 4 * h), node.input(2).dtype.numpy))
        inputs.append(rewrite.op("Concat", biases, zeros, axis=1))
    else:
        inputs.append("")
    inputs.append(node.op.inputs[4] if node.has_input(4) else "")
    if node.has_input(3):
        inputs += [part(node.op.inputs[3], state, state + 1, 0, [1, n, h]) for state in range(2)]
    y = rewrite.op("LSTM", *inputs, outputs=3, hidden_size=h)
    if node.attribute("outputFullSequence", 1):
        rewrite.op("ReshapeTo", y, into=node.op.outputs[0], shape=[t, n, h])
    else:
        rewrite.op("ReshapeTo", f"{y}/1", into=node.op.outputs[0], shape=[n, h])
    rewrite.op("ReshapeTo", f"{y}/2", into=node.op.outputs[1], shape=[n, h])


OPS = [
    *(expanded_op(type, (3, 8), _shape, _expand, flops(_work)) for type in CELLS),
    expanded_op(
        "LSTM",
        (2, 5),
        _graphcore_shape,
        _graphcore_expand,
        flops(lambda node: 2 * node.input(0).shape[0] * node.input(0).shape[1] * node.input(1).nelms),
        domain=GRAPHCORE,
    ),
]
