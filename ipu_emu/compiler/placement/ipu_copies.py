"""Copies between IPUs: a tensor that an op reads from another IPU is copied to the op's IPU, once per destination.

    IPU 0   y = Gemm(x, w)                             IPU 0   y = Gemm(x, w)
    IPU 1   z = Relu(y)             ->                 IPU 1   y/ipu1 = IpuCopy(y)
            d = ReluGrad(g, y)                                 z = Relu(y/ipu1)
                                                               d = ReluGrad(g, y/ipu1)

Constants, and scalars such as the learning rate, exist on every IPU that reads them. The update phase makes new
copies, because the tensors that it reads may have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ipu_emu.compiler.placement.tensor_places import tensor_places
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Op, Place, Role, StepPhase, id_on_ipu
from ipu_emu.ops import TABLE

#: The op that copies between IPUs.
COPY = "IpuCopy"


def insert_ipu_copies(graph: Graph, stage_of: Callable[[Op], int], totals: Mapping[str, str]) -> None:
    """Sort the ops by stage and add the copies; ``totals`` maps sums of gradients to those of a micro-batch."""
    graph.ops.sort(key=stage_of)
    if len({op.place.ipu for op in graph.ops}) > 1:
        living = tensor_places(graph, stage_of)
        living |= {total: living[part] for total, part in totals.items()}
        _IpuCopies(graph, living).run()


class _IpuCopies:
    def __init__(self, graph: Graph, living: Mapping[str, Place]) -> None:
        self.graph, self.living = graph, living
        self.copies: dict[tuple[str, int, bool], str] = {}

    def run(self) -> None:
        ops, self.graph.ops = self.graph.ops, []
        for op in ops:
            inputs = tuple(self.near(id, op) if id else "" for id in op.inputs)
            self.check(op, inputs)
            guard = self.near(op.guard, op) if op.guard else ""
            self.graph.ops.append(replace(op, inputs=inputs, guard=guard))

    def near(self, id: str, op: Op) -> str:
        """Return what ``op`` reads instead of ``id``."""
        if self.living[id].ipu == op.place.ipu:
            return id
        tensor = self.graph.tensor(id)
        everywhere = tensor.role in (Role.CONSTANT, Role.SCALAR)
        key = (id, op.place.ipu, op.phase is StepPhase.UPDATE and not everywhere)
        if key not in self.copies:
            self.copies[key] = copy = self.graph.unused(id_on_ipu(id, op.place.ipu))
            role = tensor.role if everywhere else Role.COMPUTED
            self.graph.add(replace(tensor, id=copy, role=role), self.graph.data[id] if everywhere else None)
            if not everywhere:
                self.graph.ops.append(Op(COPY, (id,), (copy,), phase=op.phase, place=op.place))
        return self.copies[key]

    def check(self, op: Op, inputs: tuple[str, ...]) -> None:
        for _, index in TABLE.in_place(op):
            if inputs[index] != op.inputs[index]:
                home = self.living[op.inputs[index]].ipu
                raise EmulatorError(
                    f"{op.label} on IPU {op.place.ipu} changes {op.inputs[index]}, which is on IPU {home}; put "
                    "all ops that use it on one IPU"
                )
