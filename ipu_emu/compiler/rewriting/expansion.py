"""Expansion: replaces the ops of a model by those that are differentiated and run.

an op whose outputs are constant             no op
Slice(data, starts, ends), both constant     Slice(data), with attributes
an optional output that was left out         gets a name, so that kernels always have a buffer for it
Call, training batch normalisation, ...      the ops that their entries expand to
the body of a While                          is expanded in the same way
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import EmulatorError, UnsupportedError
from ipu_emu.graph import Graph, Op, Role, Tensor
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops import TABLE, node_of
from ipu_emu.ops.control.iteration_bounds import with_bound
from ipu_emu.ops.control.loop_and_while import WHILE
from ipu_emu.ops.core.node import input_node
from ipu_emu.ops.core.rewrite import Rewrite
from ipu_emu.ops.insertion import evaluate
from ipu_emu.ops.normalisation.group_norm import STRIDED
from ipu_emu.ops.random.counter_rng import STREAM_ID, key_in, stream_id_of

#: Ops that are random only in training, and collectives, which all replicas must run equally often.
_UNREPEATED = ("Dropout", "ShapedDropout", "ReplicatedAllReduce", "ReplicatedReduceScatter")


def expanded(model: Graph, unexpanded: frozenset[str] = frozenset(), *, differentiated: bool = False) -> Graph:
    """A copy of ``model`` that is ready to be differentiated and lowered; ops of ``unexpanded`` types are unchanged.

    Loops of a bounded number of iterations are unrolled in models that are ``differentiated``.
    """
    graph = model.copy()
    graph.ops = []
    for op in model.ops:
        if op.type in unexpanded and not _is_known(graph, op):
            graph.ops.append(op)
            continue
        try:
            _expand(graph, op, differentiated)
        except EmulatorError:
            raise
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # an operand or attribute is invalid
            raise EmulatorError(f"Op {op.label} is malformed: {type(error).__name__}: {error}") from error
    return graph


def _expand(graph: Graph, op: Op, differentiated: bool) -> None:
    if _is_known(graph, op):
        return
    if differentiated:
        op = with_bound(graph, op)
    complete = _with_all_outputs(graph, _with_attributes(graph, op))
    rewrite = Rewrite(graph, complete)
    if expand := TABLE[op].expand:
        expand(rewrite, input_node(graph, complete))
    if not rewrite.ops:
        graph.ops.append(replace(complete, attributes=_with_bodies(complete)))
    for other in rewrite.ops:
        _declare(graph, other)
        _expand(graph, replace(other, place=op.place), differentiated)


def _with_bodies(op: Op) -> dict[str, Any]:
    """The attributes of ``op``, with bodies that are ready to be lowered."""
    bodies = {key: expanded(value) for key, value in op.attributes.items() if isinstance(value, Graph)}
    for inner in (inner for body in bodies.values() for inner in body.ops):
        if inner.type in _UNREPEATED or TABLE[inner].random or TABLE[inner].updates:
            raise EmulatorError(
                f"Op {op.label}: {inner.label} is random or changes a variable, in a loop whose number of iterations "
                "is computed or very large; give the loop a small constant number of iterations"
            )
    return {**op.attributes, **bodies}


def _declare(graph: Graph, op: Op) -> None:
    """Add the outputs of an op that replaces another."""
    if any(id and id not in graph.tensors for id in op.outputs):
        results = TABLE[op].shape(input_node(graph, op))
        for id, (dtype, shape) in zip(op.outputs, results, strict=False):
            if id and id not in graph.tensors:
                graph.add(Tensor(id, dtype, shape))


def _is_known(graph: Graph, op: Op) -> bool:
    return all(graph.tensors[id].role is Role.CONSTANT for id in op.outputs if id)


def _with_attributes(graph: Graph, op: Op) -> Op:
    """Return ``op`` with its constant inputs as attributes."""
    names = {
        index: name
        for index, name in TABLE[op].constant_inputs.items()
        if index < len(op.inputs) and op.inputs[index]
    }
    values = {name: graph.data[op.inputs[index]].tolist() for index, name in names.items()}
    inputs = ["" if index in names else id for index, id in enumerate(op.inputs)]
    while inputs and not inputs[-1]:
        inputs.pop()
    return replace(op, inputs=tuple(inputs), attributes={**op.attributes, **values})


def _with_all_outputs(graph: Graph, op: Op) -> Op:
    entry = TABLE[op]
    results = entry.shape(input_node(graph, op))
    outputs = list(op.outputs)
    for index, (dtype, shape) in enumerate(results):
        if index >= len(outputs):
            outputs.append("")
        if not outputs[index]:
            outputs[index] = graph.unused(f"{outputs[0] or op.type}/unused/{index}")
            graph.add(Tensor(outputs[index], dtype, shape))
    return replace(op, outputs=tuple(outputs))


def with_dropout(model: Graph, *, training: bool = True) -> Graph:
    """Return a copy of ``model`` (expanded) in which dropouts are active; without any, ``model`` itself.

    Dropout          DropoutWithKey
    ShapedDropout    ones of its shape -> DropoutWithKey -> broadcast and multiplied with the data
    """
    acting = {op.outputs[0] for op in model.ops if _acts(op, training)}
    if not acting:
        return model
    graph = model.copy()
    key = key_in(graph)
    graph.ops = [new for op in graph.ops for new in (_keyed(graph, op, key) if op.outputs[0] in acting else [op])]
    return graph


def _acts(op: Op, training: bool) -> bool:
    """Whether a dropout is active: by an input from opset 12 on, by an attribute (default: active) before."""
    if op.type not in ("Dropout", "ShapedDropout") or op.attributes.get("ratio", 0.5) == 0:
        return False
    trains = training and (op.domain == GRAPHCORE or op.version < 12)
    return bool(op.attributes.get("training_mode", trains)) and not op.attributes.get("is_test", 0)


def _keyed(graph: Graph, op: Op, key: str) -> Iterator[Op]:
    attributes = {**op.attributes, STREAM_ID: stream_id_of(op)}
    if op.type == "Dropout":
        yield replace(op, type="DropoutWithKey", inputs=(op.inputs[0], key), attributes=attributes)
        return
    (x, y), kind = (op.inputs[0], op.outputs[0]), graph.tensor(op.inputs[0]).dtype
    shape = tuple(op.attributes["shape"])
    ones, mask = (
        graph.add(Tensor(f"{y}/{name}", kind, shape, role), data)
        for name, role, data in (
            ("ones", Role.CONSTANT, np.ones(shape, kind.numpy)),
            ("mask", Role.COMPUTED, None),
        )
    )
    drop = replace(op, type="DropoutWithKey", domain="", inputs=(ones.id, key), outputs=(mask.id,))
    yield replace(drop, attributes=attributes)
    yield replace(op, type="Mul", domain="", inputs=(x, mask.id), attributes=op.annotations)


def with_strided_groups(model: Graph) -> Graph:
    """A copy of ``model`` whose group normalisations have strided groups: channel c belongs to group c mod G."""
    graph = model.copy()
    graph.ops = [_strided(op) for op in model.ops]
    return graph


def _strided(op: Op) -> Op:
    bodies = {key: with_strided_groups(value) for key, value in op.attributes.items() if isinstance(value, Graph)}
    strided = {STRIDED: 1} if op.type == "GroupNormalization" and op.domain else {}
    return replace(op, attributes={**op.attributes, **bodies, **strided}) if bodies or strided else op


def constants_of(graph: Graph, ids: Sequence[str]) -> list[NDArray[Any]]:
    """The values of tensors; raise UnsupportedError where an op needs a step, such as one that draws numbers."""
    if all(id in graph.data for id in ids):
        return [graph.data[id] for id in ids]
    ready = expanded(graph)
    for op in ready.ops:
        entry, node = TABLE[op], node_of(ready, op)
        if entry.kernel is None or entry.random or entry.updates or op.type == WHILE:
            raise UnsupportedError(f"Op {op.label} is not computed without a step; compute it from an input")
        ready.data |= zip(op.outputs, evaluate(entry, node, node.values), strict=True)
    return [ready.data[id] for id in ids]
