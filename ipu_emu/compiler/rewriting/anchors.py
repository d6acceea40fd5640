"""Anchors: every anchor must be a tensor of the step; those of stashed activations are copied, constants computed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import numpy as np

from ipu_emu.compiler.rewriting.op_writer import OpWriter
from ipu_emu.compiler.rewriting.reserved_prefixes import GRADIENT, RESTORED, STASHED
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Op, Role, StepPhase, Tensor
from ipu_emu.graph.dtype import FLOAT
from ipu_emu.ops import TABLE
from ipu_emu.program.anchors import Anchor


def check_anchors(graph: Graph, anchors: Sequence[Anchor]) -> None:
    """Raise EmulatorError for an anchor that is not a tensor of ``graph``, the step before pruning."""
    for anchor in anchors:
        if anchor.tensor not in graph.tensors:
            raise EmulatorError(f"Anchor tensor `{anchor.tensor}' not in Ir Tensors. {_hint(graph, anchor.tensor)}")


def _hint(graph: Graph, id: str) -> str:
    """The hint for an unknown anchor: that its base is a tensor, or the list of tensors."""
    base = id.partition("___")[2]
    if base in graph.tensors:
        return (
            f"\nInterestingly, `{base}' IS in tensors. \nNote that not all tensors have gradients: there must be a "
            "chain of ops with gradients from the tensor to the loss"
        )
    return "The tensors are:\n" + "\n".join(graph.tensors)


def restore_anchored(graph: Graph, anchored: Iterable[str]) -> None:
    """Append the ops that make the anchors of stashed activations; the last forward stage stashes none.

    anchored: Restored___y        y -> stage 2's gradients    ->    Restored___y = Identity(y), in that backward stage
    anchored: Stashed___y         y, made in stage 0          ->    Stashed___y = the stash once it has y, in stage 0

    A stash has a place for each micro-batch between the two stages, and for the current one; they are used in turn.
    """
    last = max((op.place.stage for op in graph.ops if op.phase is StepPhase.FORWARD), default=0)
    for id in anchored:
        base = id.removeprefix(RESTORED).removeprefix(STASHED)
        if base == id or base not in graph.tensors or graph.tensor(base).role.is_variable:
            continue
        readers = [
            op for op in graph.ops if op.phase is StepPhase.BACKWARD and base in op.reads and op.place.stage < last
        ]
        if readers and id.startswith(RESTORED):
            OpWriter(graph, StepPhase.BACKWARD, readers[0].place).append("Identity", (base,), (id,))
        elif readers:
            _show_stash(graph, base, readers, last)


def _show_stash(graph: Graph, id: str, readers: Sequence[Op], last: int) -> None:
    """Append a copy of the stash of ``id``, in the forward stage that puts ``id`` into it."""
    index, op = next((index, op) for index, op in enumerate(graph.ops) if id in op.outputs or id in op.inputs)
    offset = int(id in op.outputs)
    tensor, stash, count = graph.tensor(id), f"{STASHED}{id}/places", f"{STASHED}{id}/count"
    depth = 2 * last - min(reader.place.stage for reader in readers) - op.place.stage + 1
    for state in (Tensor(stash, tensor.dtype, (depth, *tensor.shape)), Tensor(count, FLOAT, ())):
        graph.add(Tensor(state.id, state.dtype, state.shape, Role.STATE), np.zeros(state.shape, state.dtype.numpy))
    outputs = (f"Updated{stash}", f"Updated{count}", STASHED + id)
    OpWriter(graph, StepPhase.FORWARD, op.place).append("PutIntoStash", (id, stash, count), outputs)
    graph.ops.insert(index + offset, graph.ops.pop())


def unfolded(model: Graph, anchored: Collection[str]) -> Graph:
    """Return ``model`` with ops instead of the constants that are ``anchored``, if gradients of constants are too.

    When a model is read, an op whose inputs are all constants becomes a constant, so that the constants before it
    have no gradient. As in PopART, an anchored result is not folded:

        c, exp(c), loss = sum(x * exp(c)); anchored: exp(c) and Gradient___c   ->   exp(c) is an op of the step
    """
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
