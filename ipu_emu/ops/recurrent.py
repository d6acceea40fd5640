"""Recurrent networks: RNN, GRU and LSTM over a sequence, in one or both directions.

    X [T, N, I]   W [D, gates H, I]   R [D, gates H, H]   B [D, 2 gates H]   ->   Y [T, D, N, H], the last state(s)

Each op expands to one Recurrence per direction, between a product of all inputs with W at once and a concatenation.
The gradient runs the sequence again, keeping its gates, and then backwards through it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ipu_emu.errors import InternalError
from ipu_emu.graph import Graph, Op
from ipu_emu.ops.adjoint import Adjoint, Value
from ipu_emu.ops.arrays import computed
from ipu_emu.ops.cost import flops
from ipu_emu.ops.node import Made, Node, inputs_of
from ipu_emu.ops.registry import Bound, OpDef, Step
from ipu_emu.ops.rewrite import Rewrite

__all__ = ["OPS"]

_Array = Any


def _sigmoid(x: _Array) -> _Array:
    return 1 / (1 + np.exp(-x))


#: name: (value, slope as a function of the value)
_ACTIVATIONS: dict[str, tuple[Callable[[_Array], _Array], Callable[[_Array], _Array]]] = {
    "sigmoid": (_sigmoid, lambda y: y * (1 - y)),
    "tanh": (np.tanh, lambda y: 1 - y * y),
    "relu": (lambda x: np.maximum(x, 0), lambda y: (y > 0).astype(y.dtype)),
}


@dataclass(frozen=True)
class _Cell:
    """One step: states and gates of a step from the product with the input; and the way back."""

    gates: int
    states: int
    defaults: tuple[str, ...]
    forward: Callable[..., tuple[list[_Array], list[_Array]]]
    backward: Callable[..., tuple[_Array, _Array, list[_Array]]]


# Each forward takes (x [N, gates H] with both biases but GRU's, states, R, recurrent bias, activations, node) and
# returns (new states, what the way back needs); each backward takes (gradients of the states, old states, saved, ...)
# and returns (gradient of x, gradient of what R made, gradients of the old states).


def _split(x: _Array, count: int) -> list[_Array]:
    return list(np.split(x, count, -1))


def _rnn(
    x: _Array, states: list[_Array], r: _Array, b: _Array, f: Any, node: Node
) -> tuple[list[_Array], list[_Array]]:
    h = f[0][0](x + states[0] @ r.T + b)
    return [h], [h]


def _rnn_back(
    g: list[_Array], states: list[_Array], saved: list[_Array], r: _Array, b: _Array, f: Any, node: Node
) -> Any:
    a = g[0] * f[0][1](saved[0])
    return a, a, [a @ r]


def _lstm(
    x: _Array, states: list[_Array], r: _Array, b: _Array, f: Any, node: Node
) -> tuple[list[_Array], list[_Array]]:
    h, c = states
    i, o, forget, new = _split(x + h @ r.T + b, 4)
    i, o, forget, new = f[0][0](i), f[0][0](o), f[0][0](forget), f[1][0](new)
    c = forget * c + i * new
    shown = f[2][0](c)
    return [o * shown, c], [i, o, forget, new, shown]


def _lstm_back(
    g: list[_Array], states: list[_Array], saved: list[_Array], r: _Array, b: _Array, f: Any, node: Node
) -> Any:
    i, o, forget, new, shown = saved
    gc = g[1] + g[0] * o * f[2][1](shown)
    parts = [
        gc * new * f[0][1](i),
        g[0] * shown * f[0][1](o),
        gc * states[1] * f[0][1](forget),
        gc * i * f[1][1](new),
    ]
    a = np.concatenate(parts, -1)
    return a, a, [a @ r, gc * forget]


def _gru(
    x: _Array, states: list[_Array], r: _Array, b: _Array, f: Any, node: Node
) -> tuple[list[_Array], list[_Array]]:
    (h,), size = states, r.shape[1]
    xz, xr, xh = _split(x, 3)
    z, reset = _split(f[0][0](np.concatenate([xz, xr], -1) + h @ r[: 2 * size].T + b[: 2 * size]), 2)
    if node.attribute("linear_before_reset", 0):
        inner = h @ r[2 * size :].T + b[2 * size :]
        new = f[1][0](xh + reset * inner)
    else:
        inner = reset * h
        new = f[1][0](xh + inner @ r[2 * size :].T + b[2 * size :])
    return [(1 - z) * new + z * h], [z, reset, new, inner]


def _gru_back(
    g: list[_Array], states: list[_Array], saved: list[_Array], r: _Array, b: _Array, f: Any, node: Node
) -> Any:
    (h,), (z, reset, new, inner), size = states, saved, r.shape[1]
    gh = g[0] * z
    gz = g[0] * (h - new) * f[0][1](z)
    gn = g[0] * (1 - z) * f[1][1](new)
    if node.attribute("linear_before_reset", 0):
        gr = gn * inner * f[0][1](reset)
        made = gn * reset
        gh = gh + made @ r[2 * size :]
    else:
        into = gn @ r[2 * size :]
        gr = into * h * f[0][1](reset)
        gh = gh + into * reset
        made = gn
    first = np.concatenate([gz, gr], -1)
    return np.concatenate([first, gn], -1), np.concatenate([first, made], -1), [gh + first @ r[: 2 * size]]


_CELLS = {
    "RNN": _Cell(1, 1, ("tanh",), _rnn, _rnn_back),
    "GRU": _Cell(3, 1, ("sigmoid", "tanh"), _gru, _gru_back),
    "LSTM": _Cell(4, 2, ("sigmoid", "tanh", "tanh"), _lstm, _lstm_back),
}


# The ops of ONNX


def _sizes(node: Node) -> tuple[int, int, int, int]:
    """(T, N, directions, H), checked."""
    cell, x, w, r = _CELLS[node.op.type], node.input(0), node.input(1), node.input(2)
    directions = 2 if node.attribute("direction", "forward") == "bidirectional" else 1
    if x.rank != 3 or w.rank != 3 or r.rank != 3:
        raise node.fail(f"data [T, N, I] and weights [D, gates H, I] are needed, found {x}, {w}, {r}")
    if node.attribute("layout", 0) or node.attribute("clip", None) is not None:
        raise node.fail("layout 1 and clip are not supported; transpose the data, or leave clip out")
    hidden = r.shape[2]
    if w.shape != (directions, cell.gates * hidden, x.shape[2]) or r.shape[:2] != w.shape[:2]:
        raise node.fail(f"weights {w} and {r} do not fit {x} in {directions} directions")
    _names(node, directions)
    return x.shape[0], x.shape[1], directions, hidden


def _names(node: Node, directions: int) -> list[list[str]]:
    """The activations of each direction."""
    defaults = list(_CELLS[node.op.type].defaults)
    names = [name.lower() for name in node.attribute("activations", [])] or defaults * directions
    if len(names) < len(defaults) * directions or any(name not in _ACTIVATIONS for name in names):
        raise node.fail(
            f"activations {names} were given; use {len(defaults)} of {', '.join(_ACTIVATIONS)} per direction"
        )
    return [names[i * len(defaults) : (i + 1) * len(defaults)] for i in range(directions)]


def _shape(node: Node) -> Made:
    t, n, directions, hidden = _sizes(node)
    dtype, states = node.input(0).dtype, _CELLS[node.op.type].states
    return [(dtype, (t, directions, n, hidden))] + [(dtype, (directions, n, hidden))] * states


def _expand(graph: Graph, op: Op) -> list[Op]:
    node, rewrite, cell = inputs_of(graph, op), Rewrite(graph, op), _CELLS[op.type]
    if node.has_input(4):
        raise node.fail("sequences of different lengths are not supported; pad them and leave sequence_lens out")
    t, n, directions, hidden = _sizes(node)
    wide, kind = cell.gates * hidden, node.input(0).dtype.numpy
    made: list[list[str]] = []
    for direction in range(directions):
        turned = direction == 1 or node.attribute("direction", "forward") == "reverse"

        def part(index: int, low: int = 0, high: int | None = None, direction: int = direction) -> str:
            """The part of an optional input that belongs to this direction; zeros where it was left out."""
            if not node.has_input(index):
                return rewrite.constant(np.zeros((wide,) if index == 3 else (n, hidden), kind))
            whole = node.input(index).shape
            one = rewrite.op("Slice", op.inputs[index], starts=[direction], ends=[direction + 1], axes=[0])
            flat = rewrite.op("ReshapeTo", one, shape=list(whole[1:]))
            return flat if high is None else rewrite.op("Slice", flat, starts=[low], ends=[high], axes=[0])

        w, r = part(1), part(2)
        products = rewrite.op("MatMul", op.inputs[0], rewrite.op("Transpose", w, perm=[1, 0]))
        products = rewrite.op("Add", products, part(3, 0, wide))
        states = [part(5 + index) for index in range(cell.states)]
        if op.type == "LSTM" and node.has_input(7):
            raise node.fail("peepholes are not supported; leave P out")
        attributes = {
            "cell": op.type,
            "reverse": int(turned),
            "activations": _names(node, directions)[direction],
            "linear_before_reset": node.attribute("linear_before_reset", 0),
        }
        y = rewrite.op(
            "Recurrence", products, r, part(3, wide, 2 * wide), *states, outputs=1 + cell.states, **attributes
        )
        made.append([y, *(f"{y}/{index}" for index in range(1, 1 + cell.states))])
    for index, output in enumerate(op.outputs):
        axis, shape = (1, [t, 1, n, hidden]) if index == 0 else (0, [1, n, hidden])
        parts = [rewrite.op("ReshapeTo", one[index], shape=shape) for one in made]
        rewrite.op("Concat", *parts, into=output, axis=axis)
    return rewrite.ops


def _unreached(bound: Bound) -> Step:
    raise InternalError(f"{bound.node.op.type} was not expanded")


# One direction


def _functions(node: Node) -> list[Any]:
    return [_ACTIVATIONS[name] for name in node.attribute("activations", [])]


def _times(node: Node, count: int) -> list[int]:
    return list(reversed(range(count))) if node.attribute("reverse", 0) else list(range(count))


def _recurrence_shape(node: Node) -> Made:
    x, states = node.input(0), [node.input(index) for index in range(3, len(node.inputs))]
    return [(x.dtype, (*x.shape[:2], states[0].shape[1]))] + [(x.dtype, state.shape) for state in states]


def _run(node: Node, x: _Array, r: _Array, b: _Array, *states: _Array) -> tuple[_Array, ...]:
    cell, functions, now = _CELLS[node.attribute("cell", "")], _functions(node), list(states)
    y = np.empty((*x.shape[:2], r.shape[1]), x.dtype)
    for t in _times(node, len(x)):
        now, _ = cell.forward(x[t], now, r, b, functions, node)
        y[t] = now[0]
    return (y, *now)


def _run_back(node: Node, x: _Array, r: _Array, b: _Array, *rest: _Array) -> tuple[_Array, ...]:
    """Gradients of x, r, b and the first states, from those of y and the last states."""
    cell, functions = _CELLS[node.attribute("cell", "")], _functions(node)
    states, g, last = rest[: cell.states], rest[cell.states], rest[cell.states + 1 :]
    order, now, kept = _times(node, len(x)), list(states), []
    for t in order:
        before = now
        now, saved = cell.forward(x[t], before, r, b, functions, node)
        kept.append((t, before, saved))
    gx, gr, gb, back = np.empty_like(x), np.zeros_like(r), np.zeros_like(b), list(last)
    for t, before, saved in reversed(kept):
        back[0] = back[0] + g[t]
        gx[t], recurrent, back = cell.backward(back, before, saved, r, b, functions, node)
        gr += _recurrent_weights(node, recurrent, before[0], saved, r.shape[1])
        gb += recurrent.sum(0)
    return (gx, gr, gb, *back)


def _recurrent_weights(node: Node, g: _Array, h: _Array, saved: list[_Array], size: int) -> _Array:
    """Gradient of R; the last gate of a GRU multiplies it with the state after the reset."""
    if node.attribute("cell", "") != "GRU" or node.attribute("linear_before_reset", 0):
        return g.T @ h
    return np.concatenate([g[:, : 2 * size].T @ h, g[:, 2 * size :].T @ saved[3]])


def _back_shape(node: Node) -> Made:
    states = _CELLS[node.attribute("cell", "")].states
    return [(node.input(i).dtype, node.input(i).shape) for i in range(3 + states)]


def _rule(d: Adjoint) -> list[Value | None]:
    gradients = [d.gradient(index) for index in range(len(d.outputs))]
    x, *others = d.inputs
    return list(x.ops(len(d.inputs), "RecurrenceGrad", *others, *gradients, **d.node.op.attributes))


def _work(node: Node) -> int:
    return 2 * node.input(0).nelms * node.input(1).shape[-1]


_cost = flops(_work)

OPS = [
    *(OpDef(type, (3, 8), _shape, _unreached, _cost, expand=_expand) for type in _CELLS),
    # Recurrence(products with the input, R, recurrent bias, first states...) -> (all states, last states...)
    OpDef("Recurrence", (4, 5), _recurrence_shape, computed(_run), _cost, _rule),
    OpDef("RecurrenceGrad", (6, 9), _back_shape, computed(_run_back), _cost),
]
