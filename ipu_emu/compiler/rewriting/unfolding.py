"""Unfolding: keeps constant expressions as ops of the step if a gradient must flow through them.

When a model is read, an op whose inputs are all constants becomes a constant, so that the constants before it have no
gradient. As in PopART, an anchored result is not folded:

    c, exp(c), loss = sum(x * exp(c)); anchored: exp(c) and Gradient___c   ->   exp(c) is an op of the step
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ipu_emu.compiler.rewriting.reserved_prefixes import GRADIENT
from ipu_emu.graph import Graph, Role
from ipu_emu.ops import TABLE


def unfolded(model: Graph, anchored: Collection[str]) -> Graph:
    """Return ``model`` with ops instead of the constants that are ``anchored``, if gradients of constants are too."""
    differentiated = {id.removeprefix(GRADIENT) for id in anchored if id.startswith(GRADIENT)}
    if not any(id in model.tensors and model.tensor(id).role is Role.CONSTANT for id in differentiated):
        return model
    graph = model.copy()
    needed = {
        op.inputs[index]
        for op in graph.ops
        for index in TABLE[op].constant_inputs
        if index < len(op.inputs) and op.inputs[index]
    }
    computed: set[str] = set()
    for op in graph.ops:
        folded = op.inputs and all(graph.tensor(id).role is Role.CONSTANT for id in op.outputs if id)
        wanted = not computed.isdisjoint(op.inputs) or not set(anchored).isdisjoint(op.outputs)
        differentiable = all(graph.tensor(id).dtype.is_float and id not in needed for id in op.outputs if id)
        if folded and wanted and differentiable:
            for id in filter(None, op.outputs):
                graph.tensors[id] = replace(graph.tensor(id), role=Role.COMPUTED)
                graph.data.pop(id)
                computed.add(id)
    return graph
