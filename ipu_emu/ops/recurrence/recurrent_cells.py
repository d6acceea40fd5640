"""Recurrent cells: one direction of a recurrent network, given the products of its inputs with their weights.

    products [T, N, gates H], R [gates H, H], bias, first states, lengths, peepholes -> states [T, N, H], last states

A sequence that has ended keeps its state and outputs zeros. The gradient runs the sequence forward again, keeping its
gates, and then backward.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ipu_emu.ops.core import Adjoint, BoundOp, Call, Node, OpDef, OutputTypes, Value, flops
from ipu_emu.ops.core.kernel_helpers import with_contiguous_operands
from ipu_emu.ops.core.numpy_tracer import traced_kernel, traced_workspace
from ipu_emu.ops.recurrence import compiled_cells, early_reset_gru
from ipu_emu.ops.recurrence.compiled_cells import is_compiled
from ipu_emu.ops.recurrence.gate_functions import GateFunction, gate_functions

_Array = Any
_Arrays = list[_Array]


@dataclass(frozen=True)
class _Weights:
    """The weights that a cell reads in every time step."""

    r: _Array
    bias: _Array
    peepholes: _Array | None
    functions: list[GateFunction]
    node: Node


@dataclass(frozen=True)
class Cell:
    """One time step of a network.

    ``forward(x [N, gates H], states, weights)`` returns the new states and the values that ``backward`` needs;
    ``backward(gradients of the states, old states, kept, weights)`` returns the gradients of x, of the product with
    R, and of the old states.
    """

    gates: int
    states: int
    defaults: tuple[str, ...]
    forward: Callable[[_Array, _Arrays, _Weights], tuple[_Arrays, _Arrays]]
    backward: Callable[[_Arrays, _Arrays, _Arrays, _Weights], tuple[_Array, _Array, _Arrays]]


def _split(x: _Array, count: int) -> _Arrays:
    return list(np.split(x, count, -1))


def _rnn(x: _Array, states: _Arrays, w: _Weights) -> tuple[_Arrays, _Arrays]:
    h = w.functions[0].value(x + states[0] @ w.r.T + w.bias)
    return [h], [h]


def _rnn_back(g: _Arrays, states: _Arrays, saved: _Arrays, w: _Weights) -> tuple[_Array, _Array, _Arrays]:
    a = g[0] * w.functions[0].slope(saved[0])
    return a, a, [a @ w.r]


def _lstm(x: _Array, states: _Arrays, w: _Weights) -> tuple[_Arrays, _Arrays]:
    """Gates in the order input, output, forget, new; peepholes in the order input, output, forget."""
    (h, c), (gate, fresh, show) = states, w.functions
    i, o, forget, new = _split(x + h @ w.r.T + w.bias, 4)
    pi, po, pf = (0, 0, 0) if w.peepholes is None else _split(w.peepholes, 3)
    i, new = gate.value(i + pi * c), fresh.value(new)
    forget = 1 - i if w.node.attribute("input_forget", 0) else gate.value(forget + pf * c)
    c = forget * c + i * new
    o, shown = gate.value(o + po * c), show.value(c)
    return [o * shown, c], [i, o, forget, new, shown]


def _lstm_back(g: _Arrays, states: _Arrays, saved: _Arrays, w: _Weights) -> tuple[_Array, _Array, _Arrays]:
    (i, o, forget, new, shown), (gate, fresh, show), c = saved, w.functions, states[1]
    pi, po, pf = (0, 0, 0) if w.peepholes is None else _split(w.peepholes, 3)
    go = g[0] * shown * gate.slope(o)
    gc = g[1] + g[0] * o * show.slope(shown) + go * po
    if w.node.attribute("input_forget", 0):
        gi, gf = gc * (new - c) * gate.slope(i), np.zeros_like(go)
    else:
        gi, gf = gc * new * gate.slope(i), gc * c * gate.slope(forget)
    a = np.concatenate([gi, go, gf, gc * i * fresh.slope(new)], -1)
    return a, a, [a @ w.r, gc * forget + gi * pi + gf * pf]


def _gru(x: _Array, states: _Arrays, w: _Weights) -> tuple[_Arrays, _Arrays]:
    (h,), size, (gate, fresh) = states, w.r.shape[1], w.functions
    xz, xr, xh = _split(x, 3)
    first, last, b_first, b_last = w.r[: 2 * size], w.r[2 * size :], w.bias[: 2 * size], w.bias[2 * size :]
    z, reset = _split(gate.value(np.concatenate([xz, xr], -1) + h @ first.T + b_first), 2)
    if w.node.attribute("linear_before_reset", 0):
        inner = h @ last.T + b_last
        new = fresh.value(xh + reset * inner)
    else:
        inner = reset * h
        new = fresh.value(xh + inner @ last.T + b_last)
    return [(1 - z) * new + z * h], [z, reset, new, inner]


def _gru_back(g: _Arrays, states: _Arrays, saved: _Arrays, w: _Weights) -> tuple[_Array, _Array, _Arrays]:
    (h,), (z, reset, new, inner), size, (gate, fresh) = states, saved, w.r.shape[1], w.functions
    gh, gz = g[0] * z, g[0] * (h - new) * gate.slope(z)
    gn = g[0] * (1 - z) * fresh.slope(new)
    if w.node.attribute("linear_before_reset", 0):
        gr, g_inner = gn * inner * gate.slope(reset), gn * reset
        gh = gh + g_inner @ w.r[2 * size :]
    else:
        into = gn @ w.r[2 * size :]
        gr, g_inner = into * h * gate.slope(reset), gn
        gh = gh + into * reset
    first = np.concatenate([gz, gr], -1)
    return np.concatenate([first, gn], -1), np.concatenate([first, g_inner], -1), [gh + first @ w.r[: 2 * size]]


CELLS = {
    "RNN": Cell(1, 1, ("tanh",), _rnn, _rnn_back),
    "GRU": Cell(3, 1, ("sigmoid", "tanh"), _gru, _gru_back),
    "LSTM": Cell(4, 2, ("sigmoid", "tanh", "tanh"), _lstm, _lstm_back),
}


# Running


def _cell(node: Node) -> Cell:
    return CELLS[node.attribute("cell", "")]


@dataclass(frozen=True)
class _DirectionPass:
    """The operands of one direction."""

    cell: Cell
    x: _Array
    weights: _Weights
    states: _Arrays
    lengths: _Array | None

    @classmethod
    def of(cls, node: Node, x: _Array, r: _Array, bias: _Array, rest: tuple[_Array | None, ...]) -> _DirectionPass:
        cell = _cell(node)
        lengths, peepholes = rest[cell.states : cell.states + 2]
        names, clip = node.attribute("activations", []), float(node.attribute("clip", 0.0))
        alphas, betas = node.attribute("activation_alpha", []), node.attribute("activation_beta", [])
        functions = gate_functions(names, alphas, betas, clip)
        if node.attribute("cell", "") == "LSTM" and clip:  # the cell itself is not clipped
            functions[2] = gate_functions(names, alphas, betas, 0.0)[2]
        return cls(cell, x, _Weights(r, bias, peepholes, functions, node), list(rest[: cell.states]), lengths)

    def times(self) -> list[int]:
        order = list(range(len(self.x)))
        return order[::-1] if self.weights.node.attribute("reverse", 0) else order

    def still_running(self, t: int) -> _Array:
        """Which sequences have not ended at time t, [N, 1]; True if none has a length."""
        return True if self.lengths is None else (t < self.lengths)[:, None]

    def step(self, t: int, states: _Arrays) -> tuple[_Arrays, _Arrays]:
        new, saved = self.cell.forward(self.x[t], states, self.weights)
        return self.chosen(t, new, states), saved

    def chosen(self, t: int, yes: _Arrays, no: _Arrays) -> _Arrays:
        """``yes`` for the sequences that have not ended at time t, ``no`` for the others."""
        if self.lengths is None:
            return yes
        return [np.where(self.still_running(t), a, b) for a, b in zip(yes, no, strict=True)]


def _shape(node: Node) -> OutputTypes:
    x, states = node.input(0), [node.input(3 + index) for index in range(_cell(node).states)]
    return [(x.dtype, (*x.shape[:2], states[0].shape[1]))] + [(x.dtype, state.shape) for state in states]


def _forward(node: Node, x: _Array, r: _Array, bias: _Array, *rest: _Array | None) -> tuple[_Array, ...]:
    run, size = _DirectionPass.of(node, x, r, bias, (*rest, None, None)), r.shape[1]
    y, states = np.empty_like(x[:, :, :size]), run.states
    for t in run.times():
        states, _ = run.step(t, states)
        y[t] = states[0] * run.still_running(t)
    return (y, *states)


def _backward(node: Node, *operands: _Array | None) -> tuple[_Array, ...]:
    """Gradients of products, R, bias, first states and peepholes, from those of y and the last states."""
    count = _cell(node).states
    x, r, bias, *rest = operands[: -1 - count]
    g, last = operands[-1 - count], operands[-count:]
    assert x is not None
    assert g is not None
    run, history = _DirectionPass.of(node, x, r, bias, tuple(rest)), []
    states = run.states
    for t in run.times():
        before = states
        states, saved = run.step(t, before)
        history.append((t, before, states, saved))
    gx, gr, gb, back = np.empty_like(x), np.zeros_like(r), np.zeros_like(bias), list(last)
    gp = np.zeros_like(np.concatenate([run.weights.r[0]] * 3, -1))
    for t, before, after, saved in reversed(history):
        on = run.still_running(t)
        back[0] = back[0] + g[t] * on
        products, recurrent, old = run.cell.backward(back, before, saved, run.weights)
        back = run.chosen(t, old, back)
        products, recurrent = products * on, recurrent * on
        gx[t] = products
        gr += _recurrent_weights(node, recurrent, before[0], saved, run.weights.r.shape[1])
        gb += recurrent.sum(0)
        if run.weights.peepholes is not None:
            gi, go, gf, _ = _split(products, 4)
            by_peepholes = np.concatenate([gi * before[1], go * after[1], gf * before[1]], -1)
            gp += by_peepholes.sum(0)
    return (gx, gr, gb, *back, gp)


def _recurrent_weights(node: Node, g: _Array, h: _Array, saved: _Arrays, size: int) -> _Array:
    """Gradient of R; the last gate of a GRU multiplies it with the state after the reset."""
    if node.attribute("cell", "") != "GRU" or node.attribute("linear_before_reset", 0):
        return g.T @ h
    return np.concatenate([g[:, : 2 * size].T @ h, g[:, 2 * size :].T @ saved[3]])


def _back_shape(node: Node) -> OutputTypes:
    operands = [node.input(index) for index in range(3 + _cell(node).states)]
    return [(t.dtype, t.shape) for t in operands] + [(operands[0].dtype, (3 * operands[1].shape[1],))]


def _rule(d: Adjoint) -> list[Value | None]:
    count = _cell(d.node).states
    operands = [d.optional(index) for index in range(5 + count)]
    absent = d.x.like(0.0)
    lengths, peepholes = operands[3 + count :]
    flags = {"with_lengths": int(lengths is not None), "with_peepholes": int(peepholes is not None)}
    inputs = [value or absent for value in operands[1:]]
    gradients = [d.gradient(index) for index in range(len(d.outputs))]
    results = d.x.ops(4 + count, "RecurrenceGrad", *inputs, *gradients, d.y, **d.node.op.attributes, **flags)
    return [*results[: 3 + count], None, results[-1] if peepholes else None]


def _gradient_kernel(node: Node, *operands: _Array) -> tuple[_Array, ...]:
    """The gradient op, in which a scalar operand marks an optional input that was left out; it does not read y."""
    count, values = _cell(node).states, list(operands[:-1])
    for index, name in enumerate(("with_lengths", "with_peepholes")):
        if not node.attribute(name, 0):
            values[3 + count + index] = None
    return _backward(node, *values)


def _work(node: Node) -> int:
    return 2 * node.input(0).nelms * node.input(1).shape[-1]


_cost = flops(_work)

_traced_forward, _traced_backward = traced_kernel(_forward), traced_kernel(_gradient_kernel)
_forward_scratch, _backward_scratch = traced_workspace(_forward), traced_workspace(_gradient_kernel)


def _compiled(node: Node) -> Any:
    """The module with the compiled form of a cell."""
    early = node.attribute("cell", "") == "GRU" and not node.attribute("linear_before_reset", 0)
    return early_reset_gru if early else compiled_cells


def _forward_call(bound: BoundOp) -> Call:
    if not is_compiled(bound.node):
        return _traced_forward(bound)
    return with_contiguous_operands(_compiled(bound.node).compiled_forward)(bound)


def _backward_call(bound: BoundOp) -> Call:
    if not is_compiled(bound.node, gradient=True):
        return _traced_backward(bound)
    return with_contiguous_operands(_compiled(bound.node).compiled_backward)(bound)


def _forward_sizes(node: Node) -> list[int]:
    return _compiled(node).forward_workspace(node) if is_compiled(node) else _forward_scratch(node)


def _backward_sizes(node: Node) -> list[int]:
    compiled = is_compiled(node, gradient=True)
    return _compiled(node).backward_workspace(node) if compiled else _backward_scratch(node)


OPS = [
    OpDef("Recurrence", (4, 7), _shape, _forward_call, _cost, _rule, _forward_sizes),
    # RecurrenceGrad(products, R, bias, first states..., lengths, peepholes, gradients of y and the last states..., y)
    OpDef("RecurrenceGrad", (9, 11), _back_shape, _backward_call, _cost, None, _backward_sizes),
]
