"""Storage order: the order in which the axes of each tensor are stored in memory.

Convolution and pooling prefer the batch innermost, [C, H, W, N]. That order spreads through element-wise ops and
views, so that a chain of such ops never copies; all other tensors are stored in the order of their shape. It passes
through a view because the flattened [N, C H W] of a [C, H, W, N] is a transposed matrix, which a matrix product reads
without a copy.

    x -- Conv -- a -- Relu -- b -- MaxPool -- c -- Flatten -- d -- Gemm -- e
    [C H W N]    [...N]       [...N]          [...N]          [CHW N]      [N K]
"""

from __future__ import annotations

from ipu_emu.graph import Graph, Op, Tensor
from ipu_emu.ops import TABLE


def batch_innermost(graph: Graph) -> set[str]:
    """Ids of the tensors that are stored with their first axis innermost."""
    chosen: set[str] = set()
    for op in graph.ops:
        operands = [*op.inputs, *op.outputs]
        chosen.update(operands[i] for i in TABLE[op].batch_innermost)
    count = -1
    while count != len(chosen):
        count = len(chosen)
        for op in graph.ops:
            together = _stored_alike(graph, op)
            if chosen.intersection(together):
                chosen.update(together)
    return chosen


def order(tensor: Tensor, batch_innermost: bool) -> tuple[int, ...]:
    """The axes of ``tensor`` from outermost to innermost in memory."""
    axes = tuple(range(tensor.rank))
    return axes[1:] + axes[:1] if batch_innermost else axes


def _stored_alike(graph: Graph, op: Op) -> list[str]:
    """The operands of ``op`` that share one order, if any of them is stored with the batch innermost."""
    entry = TABLE[op]
    shape = graph.tensors[op.outputs[0]].shape
    if entry.elementwise or entry.formula is not None:  # conversions are fused with their neighbours
        operands = [id for id in (*op.inputs, *op.outputs) if id]
        return [id for id in operands if graph.tensors[id].shape == shape and len(shape) > 1]
    if entry.view_of is not None:
        source = graph.tensors[op.inputs[entry.view_of]]
        if source.shape[:1] == shape[:1] and source.rank > 1 and len(shape) > 1:
            return [source.id, op.outputs[0]]
    return []
