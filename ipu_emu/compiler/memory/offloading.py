"""Offloading: tensors in Streaming Memory, which are on the IPU only while ops use them.

variables, between their uses                        activations, between their last use and the backward pass

    y = Gemm(x, w)                                       y = Gemm(x, w)              y = Gemm(x, w)
    ...                     w' = RemoteLoad(w)           ...                  ->     r = RemoteStore(y)
    w, m = Adam(w, m, g)    y = Gemm(x, w')              d = TanhGrad(g, y)          ...
                            ...                                                      y' = RemoteLoad(r)
                            w', m' = RemoteLoad(w, m)                                d = TanhGrad(g, y')
                     ->     w', m' = Adam(w', m', g)
                            RemoteUpdate(w, w'), RemoteUpdate(m, m')

A variable is loaded once for each pass and each stage on an IPU. Copies change no bit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ipu_emu.compiler.annotations import OUTPUT_LOCATION
from ipu_emu.compiler.gradients.gradient import Gradient
from ipu_emu.graph import Graph, Op, Place, Role, StepPhase, Tensor
from ipu_emu.ops import TABLE
from ipu_emu.ops.communication.memory_copy_ops import REMOTE_LOAD, REMOTE_STORE, REMOTE_UPDATE

_LOADED, _REMOTE, _STORED = "Loaded___", "Remote___", "Stored___"
_COPIES = (REMOTE_LOAD, REMOTE_STORE, REMOTE_UPDATE)


@dataclass(frozen=True)
class ActivationStorage:
    """Activations of at least ``smallest`` elements (None: none) are off chip; ``chosen`` overrides this by id."""

    smallest: int | None = None
    chosen: Mapping[str, bool] = field(default_factory=dict)

    def is_off_chip(self, op: Op, tensor: Tensor) -> bool:
        """Whether an output of ``op`` is off chip between the passes."""
        annotated = op.attributes.get(OUTPUT_LOCATION)
        is_large = self.smallest is not None and tensor.nelms >= self.smallest
        return self.chosen.get(tensor.id, is_large if annotated is None else annotated[0] == 1)


def offload_variables(graph: Graph, off_chip: Callable[[Tensor], bool]) -> None:
    """Move the variables for which ``off_chip`` is true to Streaming Memory."""
    for tensor in graph.with_role(Role.WEIGHT, Role.STATE):
        if off_chip(tensor):
            graph.tensors[tensor.id] = replace(tensor, off_chip=True)
    if any(tensor.off_chip for tensor in graph.tensors.values()):
        _Variables(graph).run()


def offload_accumulators(
    graph: Graph, gradients: Sequence[Gradient], off_chip: Callable[[Tensor], bool], replicas: int
) -> list[Gradient]:
    """Move sums over micro-batches to Streaming Memory where ``off_chip`` is true; return the new gradients.

    A sum that replicas reduce as a whole is loaded and reduced for its update. A sum that several ops read stays on
    chip.
    """
    return [_offloaded(graph, gradient, off_chip, replicas) for gradient in gradients]


def _offloaded(graph: Graph, gradient: Gradient, off_chip: Callable[[Tensor], bool], replicas: int) -> Gradient:
    total = graph.tensor(gradient.total)
    if gradient.total == gradient.part or not off_chip(graph.tensor(gradient.joins or gradient.total)):
        return gradient
    together = replicas if total.group is None else total.group[1]
    remote = not gradient.scattered and together > 1
    if remote and sum(gradient.total in op.inputs for op in graph.ops) > 1:
        return gradient
    graph.tensors[total.id] = replace(total, off_chip=True)
    return replace(gradient, scattered=True, remote=remote)


class _Variables:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.loaded: dict[tuple[str, StepPhase, Place], str] = {}

    def run(self) -> None:
        ops, self.graph.ops = self.graph.ops, []
        for op in ops:
            inputs = tuple(self.near(id, op) if id else "" for id in op.inputs)
            self.graph.ops.append(replace(op, inputs=inputs))
            for output, index in TABLE.in_place(op):
                if inputs[index] != op.inputs[index]:
                    self.store(op.inputs[index], output, op)

    def near(self, id: str, op: Op) -> str:
        """Return what ``op`` reads instead of ``id``."""
        if not self.graph.tensor(id).off_chip:
            return id
        key = (id, op.phase, op.place)
        if key not in self.loaded:
            self.loaded[key] = _new(self.graph, _LOADED + id, id, off_chip=False)
            self.graph.ops.append(Op(REMOTE_LOAD, (id,), (self.loaded[key],), phase=op.phase, place=op.place))
        return self.loaded[key]

    def store(self, id: str, value: str, op: Op) -> None:
        """Store a new value in Streaming Memory; later readers load it again."""
        self.loaded = {key: copy for key, copy in self.loaded.items() if key[0] != id}
        stored = _new(self.graph, _STORED + id, id, off_chip=True)
        self.graph.ops.append(Op(REMOTE_UPDATE, (id, value), (stored,), phase=op.phase, place=op.place))


def offload_activations(graph: Graph, storage: ActivationStorage) -> None:
    """Keep the activations that ``storage`` selects in Streaming Memory until the backward pass."""
    producers = {id: op for op in graph.ops if op.phase is StepPhase.FORWARD for id in op.outputs if id}
    read = {id for op in graph.ops if op.phase is StepPhase.BACKWARD for id in op.inputs}
    remote = {
        id: _new(graph, _REMOTE + id, id, off_chip=True)
        for id, op in producers.items()
        if id in read and _may_leave(op) and storage.is_off_chip(op, graph.tensor(id))
    }
    if not remote:
        return
    loaded: dict[tuple[str, Place], str] = {}
    ops, graph.ops = graph.ops, []
    for op in ops:
        if op.phase is StepPhase.BACKWARD:
            for id in dict.fromkeys(op.inputs):
                if id in remote and (id, op.place) not in loaded:
                    loaded[id, op.place] = _new(graph, _LOADED + id, id, off_chip=False)
                    outputs = (loaded[id, op.place],)
                    graph.ops.append(Op(REMOTE_LOAD, (remote[id],), outputs, phase=op.phase, place=op.place))
            op = replace(op, inputs=tuple(loaded.get((id, op.place), id) for id in op.inputs))
        graph.ops.append(op)
        graph.ops += [
            Op(REMOTE_STORE, (id,), (remote[id],), phase=op.phase, place=op.place)
            for id in op.outputs
            if id in remote and producers[id] is op
        ]


def _may_leave(op: Op) -> bool:
    """Whether the results of ``op`` may be off-chip: not those of updates in place, and not loaded copies."""
    return not TABLE[op].updates and op.type not in _COPIES


def _new(graph: Graph, base: str, like: str, *, off_chip: bool) -> str:
    tensor = replace(graph.tensor(like), id=graph.unused(base), role=Role.COMPUTED, shards=None, off_chip=off_chip)
    return graph.add(tensor).id


def stage_inputs(graph: Graph, ids: Collection[str]) -> None:
    """Move the inputs ``ids`` that an op reads to Streaming Memory.

        y = Gemm(x, w)                     x' = RemoteLoad(x)        x: several places in Streaming Memory
        ...                         ->     y = Gemm(x', w)
        dw = Gemm(x, dy)                   ...
                                           x'' = RemoteLoad(x)
                                           dw = Gemm(x'', dy)

    An input is loaded once for each pass, to the IPU that reads it first. Copies change no bit.
    """
    if not ids:
        return
    homes: dict[str, Place] = {}
    loaded: dict[tuple[str, StepPhase], str] = {}
    ops, graph.ops = graph.ops, []
    for op in ops:
        for id in dict.fromkeys(op.reads):
            if id in ids and (id, op.phase) not in loaded:
                place = homes.setdefault(id, op.place)
                loaded[id, op.phase] = _near(graph, id)
                graph.ops.append(Op(REMOTE_LOAD, (id,), (loaded[id, op.phase],), phase=op.phase, place=place))
        inputs = tuple(loaded.get((id, op.phase), id) for id in op.inputs)
        graph.ops.append(replace(op, inputs=inputs, guard=loaded.get((op.guard, op.phase), op.guard)))
    for id in homes:
        graph.tensors[id] = replace(graph.tensor(id), off_chip=True)


def _near(graph: Graph, id: str) -> str:
    tensor = graph.tensor(id)
    return graph.add(replace(tensor, id=graph.unused(f"Loaded___{id}"), role=Role.COMPUTED)).id
