"""Compiled cells: LSTM, GRU and RNN with their usual functions, a product of all gates and a kernel per time step.

    forward    per step   recurrent product of all gates from R packed once; gates, cell and state in one kernel
    backward   once       the gates of all steps, as the states before each step are known: one product, one kernel
               per step   gradients of the gates in one kernel, then their product with R
               once       gradients of R and of the bias

A GRU whose reset gate comes before the product is in ``early_reset_gru``. Networks with other functions, lengths,
peepholes or clipping run step by step in numpy (``recurrent_cells``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.graph.dtype import FLOAT, FLOAT16
from ipu_emu.ops.codegen.gemm import gemm, gemm_workspace
from ipu_emu.ops.codegen.packed_matrix import PackedMatrix, held_matrix
from ipu_emu.ops.core import BoundOp, Call, Node, call_chain
from ipu_emu.ops.core.row_kernels import column_sums
from ipu_emu.ops.recurrence.cell_run import CellRun, full, states_before

_Array = NDArray[Any]


@dataclass(frozen=True)
class _Form:
    """The kernels of a cell, in the language of ``row_kernels``; capitals name gates in the order of R.

    ``step`` makes the state h2 (and the cell c) from products x_, recurrent products r_ and the state h (the cell
    c). ``activate`` replaces the recurrent products of all steps by the gates, of which ``cells`` makes what else the
    gradient needs. ``back`` makes gradients of the products d_ and of the state from that of the output g and of the
    state b; with ``own`` the recurrent products have gradients e_ of their own.
    """

    gates: str
    step: str
    activate: str
    back: str
    own: bool = False
    cells: str = ""


_FORMS = {
    "LSTM": _Form(
        "iofn",
        "ai = add xi ri; i = sigmoid ai; ao = add xo ro; o = sigmoid ao; af = add xf rf; f = sigmoid af; "
        "an = add xn rn; n = tanh an; p = mul f c; q = mul i n; d = add p q; s = tanh d; h2 = mul o s; "
        "store c d; store y h2",
        "ai = add xi ri; i = sigmoid ai; ao = add xo ro; o = sigmoid ao; af = add xf rf; f = sigmoid af; "
        "an = add xn rn; n = tanh an; store ri i; store ro o; store rf f; store rn n",
        "a = add g b; k1 = mul a s; k2 = sub 1 ro; k3 = mul ro k2; do2 = mul k1 k3; k4 = mul s s; k5 = sub 1 k4; "
        "k6 = mul a ro; k7 = mul k6 k5; e = add bc k7; j1 = mul e rn; j2 = sub 1 ri; j3 = mul ri j2; "
        "di2 = mul j1 j3; l1 = mul e c; l2 = sub 1 rf; l3 = mul rf l2; df2 = mul l1 l3; m1 = mul e ri; "
        "m2 = mul rn rn; m3 = sub 1 m2; dn2 = mul m1 m3; old = mul e rf; store di di2; store do do2; store df df2; "
        "store dn dn2; store bc old",
        cells="p = mul rf c; q = mul ri rn; d = add p q; t = tanh d; store c2 d; store s t",
    ),
    "GRU": _Form(
        "zrn",
        "az = add xz rz; z = sigmoid az; ar = add xr rr; r = sigmoid ar; k1 = mul r rn; an = add xn k1; n = tanh an; "
        "k2 = sub 1 z; k3 = mul k2 n; k4 = mul z h; h2 = add k3 k4; store y h2",
        "az = add xz rz; z = sigmoid az; ar = add xr rr; r = sigmoid ar; k1 = mul r rn; an = add xn k1; n = tanh an; "
        "store rz z; store rr r; store s n",
        "a = add g b; k1 = sub h s; k2 = mul a k1; k3 = sub 1 rz; k4 = mul rz k3; dz2 = mul k2 k4; k5 = mul a k3; "
        "k6 = mul s s; k7 = sub 1 k6; dn2 = mul k5 k7; k8 = mul dn2 rn; k9 = sub 1 rr; j1 = mul rr k9; "
        "dr2 = mul k8 j1; en2 = mul dn2 rr; old = mul a rz; store dz dz2; store dr dr2; store dn dn2; "
        "store ez dz2; store er dr2; store en en2; store b old",
        own=True,
    ),
    "RNN": _Form(
        "n",
        "an = add xn rn; n = tanh an; store y n",
        "an = add xn rn; n = tanh an; store rn n",
        "a = add g b; k1 = mul rn rn; k2 = sub 1 k1; dn2 = mul a k2; store dn dn2",
    ),
}
_FUNCTIONS = {"LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"], "RNN": ["tanh"]}
_STATES = {"LSTM": 2, "GRU": 1, "RNN": 1}


def is_compiled(node: Node, *, gradient: bool = False) -> bool:
    """Whether the cell has its usual functions, and sizes that fill a tile."""
    cell, x, r = node.attribute("cell", ""), node.input(0), node.input(1)
    states = _STATES[cell]
    if gradient:
        rest = node.attribute("with_lengths", 0) or node.attribute("with_peepholes", 0)
    else:
        rest = any(node.has_input(3 + states + index) for index in range(2))
    usual = node.attribute("activations", []) == _FUNCTIONS[cell] and not node.attribute("clip", 0.0)
    usual = usual and not node.attribute("input_forget", 0) and not rest
    hidden = r.shape[1]
    return usual and x.dtype in (FLOAT, FLOAT16) and 0 not in x.shape and hidden % 32 == 0 and hidden > 0


def _run_of(node: Node, x: _Array, r: _Array) -> tuple[CellRun, _Form]:
    form = _FORMS[node.attribute("cell", "")]
    return CellRun(node, x, r, form.gates), form


def forward_workspace(node: Node) -> list[int]:
    """float32 elements: R in strips, and the recurrent products of a step."""
    (_, n, wide), hidden = node.input(0).shape, node.input(1).shape[1]
    return [PackedMatrix.size(hidden, wide), n * wide]


def compiled_forward(bound: BoundOp) -> Call:
    """Inputs products, R, bias, h (and c); outputs y, and the last h (and c)."""
    x, r, bias, h = (bound.input(index) for index in range(4))
    y, *last = bound.outputs
    run, form = _run_of(bound.node, x, r)
    held = bound.held_of(1)
    packed = PackedMatrix(r.T, bound.scratch[0]) if held is None else held_matrix(r.T, held)
    products = bound.scratch[1][: run.n * run.wide].reshape(run.n, run.wide)
    steps: list[Call] = [*packed.packing]
    if run.has_cell:
        steps.append(partial(np.copyto, last[1], bound.input(4)))
    for t in run.order:
        operands = {**run.parts("x", x[t]), **run.parts("r", products), "h": full(h), "y": full(y[t])}
        if run.has_cell:
            operands["c"] = full(last[1])
        steps += [*packed.product(h, products, bias), run.kernel(form.step, run.n, **operands)]
        h = y[t]
    return call_chain(*steps, partial(np.copyto, last[0], h))


def backward_workspace(node: Node) -> list[int]:
    """float32 elements: those of ``gemm``, R in strips, gates, states before each step, cells and what they show."""
    (t, n, wide), hidden = node.input(0).shape, node.input(1).shape[1]
    rows = t * n
    gemms = [gemm_workspace(rows, hidden, wide, 1, half=False), gemm_workspace(wide, rows, hidden, 1, half=False)]
    cell = node.attribute("cell", "")
    own = rows * wide if _FORMS[cell].own else 0
    states = rows * hidden
    return [
        *(max(sizes) for sizes in zip(*gemms, strict=True)),
        PackedMatrix.size(wide, hidden),
        rows * wide,
        states,
        states + n * hidden if cell == "LSTM" else 0,
        states if cell != "RNN" else 0,
        own,
    ]


def compiled_backward(bound: BoundOp) -> Call:
    """Inputs products, R, bias, states, lengths, peepholes, gradients of y and of the last states, y."""
    node = bound.node
    x, r, bias = (bound.input(index) for index in range(3))
    count = _STATES[node.attribute("cell", "")]
    first = [bound.input(3 + index) for index in range(count)]
    g, *last, y = (bound.input(index) for index in range(len(bound.inputs) - 2 - count, len(bound.inputs)))
    gx, gr, gb, *back, peepholes = bound.outputs
    run, form = _run_of(node, x, r)
    rows, hidden = run.t * run.n, run.hidden
    *multiply, strips, gates, before, cells, shown, own = bound.scratch
    gates = gates[: rows * run.wide].reshape(run.t, run.n, run.wide)
    before = before[: rows * hidden].reshape(run.t, run.n, hidden)
    packed = PackedMatrix(r, strips)

    steps: list[Call] = states_before(run, first[0], y, before)
    flat = gates.reshape(rows, run.wide)
    steps += gemm(before.reshape(rows, hidden), r.T, flat, multiply, bias)
    operands = {**run.parts("x", x.reshape(rows, run.wide)), **run.parts("r", flat)}
    if shown.size:
        shown = shown[: rows * hidden].reshape(run.t, run.n, hidden)
        operands["s"] = full(shown.reshape(rows, hidden))
    steps.append(run.kernel(form.activate, rows, **operands))
    cells_before: dict[int, _Array] = {}
    if run.has_cell:
        calls, cells_before = _cells(run, first[1], gates, cells, shown)
        steps += calls

    steps += [partial(np.copyto, to, of) for to, of in zip(back, last, strict=True)]
    recurrent = own[: rows * run.wide].reshape(gates.shape) if form.own else gx
    steps += packed.packing
    for t in reversed(run.order):
        operands = {
            **run.parts("r", gates[t]),
            **run.parts("d", gx[t]),
            **run.parts("e", recurrent[t]),
            "g": full(g[t]),
            "b": full(back[0]),
            "h": full(before[t]),
        }
        if shown.size:
            operands["s"] = full(shown[t])
        if run.has_cell:
            operands |= {"bc": full(back[1]), "c": full(cells_before[t])}
        steps.append(run.kernel(form.back, run.n, **operands))
        steps += packed.product(recurrent[t], back[0], add=form.own)

    flat = recurrent.reshape(rows, run.wide)
    steps += gemm(flat.T, before.reshape(rows, hidden), gr, multiply)
    steps += [partial(gb.fill, 0), column_sums(flat, gb, rows, run.wide), partial(peepholes.fill, 0)]
    return call_chain(*steps)


def _cells(
    run: CellRun, first: _Array, gates: _Array, cells: _Array, shown: _Array
) -> tuple[list[Call], dict[int, _Array]]:
    """The calls that compute the cells of all steps, and the cell before each step."""
    rows = cells[: (run.t + 1) * run.n * run.hidden].reshape(run.t + 1, run.n, run.hidden)
    steps: list[Call] = [partial(np.copyto, rows[0], first)]
    for number, t in enumerate(run.order):
        operands = {**run.parts("r", gates[t]), "c": full(rows[number]), "c2": full(rows[number + 1])}
        steps.append(run.kernel(_FORMS["LSTM"].cells, run.n, **operands, s=full(shown[t])))
    return steps, dict(zip(run.order, rows, strict=False))
