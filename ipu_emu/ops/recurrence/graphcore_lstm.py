"""The LSTM of aiGraphcore, in terms of ONNX's.

    x [T, N, I]  weights [4, I + H, H]  biases [4, H]  first state [2, N, H]  ->  [T, N, H] or [N, H], cell [N, H]

Gates are in the order forget, input, new, output; the first state is that of the output, then of the cell.
"""

from __future__ import annotations

import numpy as np

from ipu_emu.graph import Graph, Op
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.core.cost import flops
from ipu_emu.ops.core.node import Node, OutputTypes, input_node
from ipu_emu.ops.core.op_definition import OpDef, replaced_before_run
from ipu_emu.ops.core.rewrite import Rewrite

__all__ = ["OPS"]

#: Where ONNX's gates input, output, forget, new are found.
_GATES = [1, 3, 0, 2]


def _sizes(node: Node) -> tuple[int, int, int, int]:
    """(T, N, I, H), checked."""
    x, w = node.input(0), node.input(1)
    if x.rank != 3 or w.rank != 3 or w.shape != (4, x.shape[2] + w.shape[2], w.shape[2]):
        raise node.fail(f"data [T, N, I] and weights [4, I + H, H] are needed, found {x} and {w}")
    (t, n, i), h = x.shape, w.shape[2]
    for index, shape in ((2, (4, h)), (3, (2, n, h)), (4, (n,))):
        if node.has_input(index) and node.input(index).shape != shape:
            raise node.fail(f"{node.input(index)} must have shape {list(shape)}")
    return t, n, i, h


def _shape(node: Node) -> OutputTypes:
    t, n, _, h = _sizes(node)
    dtype = node.input(0).dtype
    return [(dtype, (t, n, h) if node.attribute("outputFullSequence", 1) else (n, h)), (dtype, (n, h))]


def _expand(graph: Graph, op: Op) -> list[Op]:
    node, rewrite = input_node(graph, op), Rewrite(graph, op)
    t, n, i, h = _sizes(node)

    def part(id: str, low: int, high: int, axis: int, shape: list[int]) -> str:
        return rewrite.op("ReshapeTo", rewrite.op("Slice", id, starts=[low], ends=[high], axes=[axis]), shape=shape)

    order = rewrite.constant(np.array(_GATES))
    gates = rewrite.op("Gather", rewrite.op("Transpose", op.inputs[1], perm=[0, 2, 1]), order, axis=0)
    inputs = [op.inputs[0], part(gates, 0, i, 2, [1, 4 * h, i]), part(gates, i, i + h, 2, [1, 4 * h, h])]
    if node.has_input(2):
        biases = rewrite.op("ReshapeTo", rewrite.op("Gather", op.inputs[2], order, axis=0), shape=[1, 4 * h])
        zeros = rewrite.constant(np.zeros((1, 4 * h), node.input(2).dtype.numpy))
        inputs.append(rewrite.op("Concat", biases, zeros, axis=1))
    else:
        inputs.append("")
    inputs.append(op.inputs[4] if node.has_input(4) else "")
    if node.has_input(3):
        inputs += [part(op.inputs[3], state, state + 1, 0, [1, n, h]) for state in range(2)]
    y = rewrite.op("LSTM", *inputs, outputs=3, hidden_size=h)
    if node.attribute("outputFullSequence", 1):
        rewrite.op("ReshapeTo", y, into=op.outputs[0], shape=[t, n, h])
    else:
        rewrite.op("ReshapeTo", f"{y}/1", into=op.outputs[0], shape=[n, h])
    rewrite.op("ReshapeTo", f"{y}/2", into=op.outputs[1], shape=[n, h])
    return rewrite.ops


def _work(node: Node) -> int:
    return 2 * node.input(0).shape[0] * node.input(0).shape[1] * node.input(1).nelms


OPS = [OpDef("LSTM", (2, 5), _shape, replaced_before_run, flops(_work), expand=_expand, domain=GRAPHCORE)]
