"""Executable: everything that an engine needs to run a model: graph, program and memory plan; and its report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ipu_emu.graph import Graph, Tensor
from ipu_emu.ops import TABLE, OpCost
from ipu_emu.program.anchors import Anchor, StepShape
from ipu_emu.program.instructions import Instruction, leaves, listing
from ipu_emu.program.memory_plan import MemoryPlan, node_in


@dataclass(frozen=True)
class Executable:
    """The compiled step of one model; ``sync`` names the sync pattern of the devices that it runs on."""

    graph: Graph
    program: tuple[Instruction, ...]
    plan: MemoryPlan
    step: StepShape
    anchors: Mapping[str, Anchor]
    inputs: tuple[Tensor, ...]
    sync: str = "Full"

    def cost(self) -> OpCost:
        """Floating-point operations and bytes of one micro-batch on one replica, weight update included."""
        costs = [
            TABLE[op].cost(node_in(self.graph, op))
            for leaf in leaves(self.program)
            for op in leaf.ops[:1]
            if op.outputs[0] not in self.plan.views
        ]
        return OpCost(sum(cost.flops for cost in costs), sum(cost.bytes for cost in costs))

    def __str__(self) -> str:
        return f"{listing(self.program)}\n\n{self.plan}"


@dataclass(frozen=True)
class ProgramReport:
    """The operations and the memory of a program.

    ``memory`` in bytes by region of one replica; ``flops`` and ``bytes`` of one micro-batch on one replica.
    """

    program: str
    memory: Mapping[str, int]
    flops: int
    bytes: int
    replicas: int

    @classmethod
    def of(cls, executable: Executable, replicas: int) -> ProgramReport:
        cost = executable.cost()
        return cls(listing(executable.program), dict(executable.plan.sizes), cost.flops, cost.bytes, replicas)
