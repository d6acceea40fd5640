"""Early-reset GRU, compiled: the reset gate multiplies the state before its product (linear_before_reset 0).

forward    per step   product of gates z and r; r h in one kernel; product of gate n; the state in one kernel
backward   once       gates of all steps: the same two products and kernels, over all states
           per step   gradients of n and z, product with R of n; gradient of r, product with R of z and r
           once       gradients of both parts of R, and of the bias
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ipu_emu.ops.codegen.gemm import gemm, gemm_workspace
from ipu_emu.ops.codegen.packed_matrix import PackedMatrix
from ipu_emu.ops.core import BoundOp, Call, Node, call_chain
from ipu_emu.ops.core.row_kernels import column_sums
from ipu_emu.ops.recurrence.cell_run import CellRun, full, states_before

_GATES = "zrn"

_RESET = (
    "az = add xz rz; z = sigmoid az; ar = add xr rr; r = sigmoid ar; k = mul r h; store rz z; store rr r; store i k"
)
_NEW = "an = add xn rn; n = tanh an; store rn n"
_STATE = "an = add xn rn; n = tanh an; k1 = sub 1 rz; k2 = mul k1 n; k3 = mul rz h; h2 = add k2 k3; store y h2"
_BACK = (
    "a = add g b; k1 = sub h rn; k2 = mul a k1; k3 = sub 1 rz; k4 = mul rz k3; dz2 = mul k2 k4; k5 = mul a k3; "
    "k6 = mul rn rn; k7 = sub 1 k6; dn2 = mul k5 k7; old = mul a rz; store dz dz2; store dn dn2; store b old"
)
_BACK_RESET = (
    "k1 = mul i h; k2 = sub 1 rr; k3 = mul rr k2; dr2 = mul k1 k3; k4 = mul i rr; old = add b k4; store dr dr2; "
    "store b old"
)


def forward_workspace(node: Node) -> list[int]:
    """float32 elements: both parts of R in strips, the products of a step, and its state after the reset."""
    (_, n, wide), hidden = node.input(0).shape, node.input(1).shape[1]
    strips = [PackedMatrix.size(hidden, size) for size in (2 * hidden, hidden)]
    return [*strips, n * wide, n * hidden]


def compiled_forward(bound: BoundOp) -> Call:
    """Inputs products, R, bias, h; outputs y, and the last h."""
    x, r, bias, h = (bound.input(index) for index in range(4))
    y, last = bound.outputs
    run, two = CellRun(bound.node, x, r, _GATES), 2 * r.shape[1]
    gates, new = PackedMatrix(r[:two].T, bound.scratch[0]), PackedMatrix(r[two:].T, bound.scratch[1])
    products = bound.scratch[2][: run.n * run.wide].reshape(run.n, run.wide)
    inner = bound.scratch[3][: run.n * run.hidden].reshape(run.n, run.hidden)
    steps: list[Call] = [*gates.packing, *new.packing]
    for t in run.order:
        operands = {**run.parts("x", x[t]), **run.parts("r", products)}
        operands |= {"h": full(h), "i": full(inner), "y": full(y[t])}
        steps += [*gates.product(h, products[:, :two], bias[:two]), run.kernel(_RESET, run.n, **operands)]
        steps += [*new.product(inner, products[:, two:], bias[two:]), run.kernel(_STATE, run.n, **operands)]
        h = y[t]
    return call_chain(*steps, partial(np.copyto, last, h))


def backward_workspace(node: Node) -> list[int]:
    """float32 elements: those of ``gemm``, both parts of R in strips, gates, states before each step and after its
    reset, and the gradient of the latter in one step.
    """
    (t, n, wide), hidden = node.input(0).shape, node.input(1).shape[1]
    rows = t * n
    sizes = [(rows, hidden, size) for size in (2 * hidden, hidden)]
    sizes += [(size, rows, hidden) for size in (2 * hidden, hidden)]
    workspaces = [gemm_workspace(*size, 1, half=False) for size in sizes]
    strips = [PackedMatrix.size(size, hidden) for size in (2 * hidden, hidden)]
    return [*map(max, zip(*workspaces, strict=True)), *strips, rows * wide, rows * hidden, rows * hidden, n * hidden]


def compiled_backward(bound: BoundOp) -> Call:
    """Inputs products, R, bias, h, lengths, peepholes, gradients of y and of the last h, y."""
    x, r, bias, first = (bound.input(index) for index in range(4))
    g, last, y = (bound.input(index) for index in range(len(bound.inputs) - 3, len(bound.inputs)))
    gx, gr, gb, back, peepholes = bound.outputs
    run, two = CellRun(bound.node, x, r, _GATES), 2 * r.shape[1]
    rows, hidden = run.t * run.n, run.hidden
    *multiply, strips, more_strips, gates, before, inner, into = bound.scratch
    gates = gates[: rows * run.wide].reshape(run.t, run.n, run.wide)
    before, inner = (a[: rows * hidden].reshape(run.t, run.n, hidden) for a in (before, inner))
    into = into[: run.n * hidden].reshape(run.n, hidden)
    packed, new = PackedMatrix(r[:two], strips), PackedMatrix(r[two:], more_strips)

    flat, states, resets = gates.reshape(rows, -1), before.reshape(rows, -1), inner.reshape(rows, -1)
    operands = {**run.parts("x", x.reshape(rows, -1)), **run.parts("r", flat), "h": full(states), "i": full(resets)}
    steps: list[Call] = states_before(run, first, y, before)
    steps += [*gemm(states, r[:two].T, flat[:, :two], multiply, bias[:two]), run.kernel(_RESET, rows, **operands)]
    steps += [*gemm(resets, r[two:].T, flat[:, two:], multiply, bias[two:]), run.kernel(_NEW, rows, **operands)]

    steps += [partial(np.copyto, back, last), *packed.packing, *new.packing]
    for t in reversed(run.order):
        operands = {**run.parts("r", gates[t]), **run.parts("d", gx[t]), "g": full(g[t]), "b": full(back)}
        operands |= {"h": full(before[t]), "i": full(into)}
        steps += [run.kernel(_BACK, run.n, **operands), *new.product(gx[t][:, two:], into)]
        steps += [run.kernel(_BACK_RESET, run.n, **operands), *packed.product(gx[t][:, :two], back, add=True)]

    products = gx.reshape(rows, run.wide)
    steps += gemm(products[:, :two].T, states, gr[:two], multiply)
    steps += gemm(products[:, two:].T, resets, gr[two:], multiply)
    steps += [partial(gb.fill, 0), column_sums(products, gb, rows, run.wide), partial(peepholes.fill, 0)]
    return call_chain(*steps)
