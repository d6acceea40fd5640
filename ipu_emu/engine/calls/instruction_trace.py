"""InstructionTrace: the spans of instructions in the trace of a process, one after the other without gaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ipu_emu.engine.calls.step_counters import StepCounters
from ipu_emu.engine.calls.timed_calls import Groups, timed_calls
from ipu_emu.ops import Call
from ipu_emu.ops.core.call_chain import call_chain
from ipu_emu.program.instructions import (
    AllReduce,
    HostLoad,
    HostStore,
    Instruction,
    IpuCopy,
    Leaf,
    RemoteLoad,
    RemoteStore,
    ReplicaCollective,
    ShardCollectives,
    WeightUpdate,
    row,
)
from ipu_emu.program.leaf_label import LeafLabel
from popdist_py.trace import Category, Recorder
from popdist_py.trace import Sequence as Spans
from popdist_py.trace.records import LONGEST_SEQUENCE

__all__ = ["BoundLeaves", "InstructionTrace"]

#: Instructions with their calls.
BoundLeaves = Sequence[tuple[Leaf, Sequence[Call]]]

#: The category of an instruction's time.
CATEGORIES: dict[type[Instruction], Category] = {
    Instruction: Category.COMPUTE,
    WeightUpdate: Category.UPDATE,
    IpuCopy: Category.IPU_COPIES,
    RemoteLoad: Category.STREAMING_MEMORY,
    RemoteStore: Category.STREAMING_MEMORY,
    ReplicaCollective: Category.COLLECTIVES,
    ShardCollectives: Category.COLLECTIVES,
    AllReduce: Category.COLLECTIVES,
    HostLoad: Category.HOST_IO,
    HostStore: Category.HOST_IO,
}


class InstructionTrace:
    """Combines the calls of several instructions to one call; their spans have the micro-batch as value.

    ``about`` labels each span, for example with the stage of a pipeline; its ``ipu`` runs instructions without ops.
    """

    def __init__(self, recorder: Recorder, offset: int, about: Mapping[str, Any] | None = None) -> None:
        self._recorder, self._offset, self._about = recorder, offset, dict(about or {})

    def chain(
        self, bound: Sequence[tuple[Leaf, Sequence[Call]]], replica: int | None, counters: StepCounters
    ) -> Call:
        """Run the calls in order; ``replica`` is the local index, None for instructions of all replicas at once.

        Instructions without calls, such as views, have no spans.
        """
        bound = [(leaf, calls) for leaf, calls in bound if calls]
        track = 0
        if replica is not None and bound:
            ipu = next((op.place.ipu for leaf, _ in bound for op in leaf.ops), self._about.get("ipu", 0))
            number = self._offset + replica
            track = self._recorder.track(f"replica {number}, IPU {ipu}", replica=number, ipu=ipu)
        parts = [bound[at : at + LONGEST_SEQUENCE] for at in range(0, len(bound), LONGEST_SEQUENCE)]
        traced = [self._traced(part, track, counters) for part in parts]
        return traced[0] if len(traced) == 1 else call_chain(*traced)

    def _traced(self, bound: BoundLeaves, track: int, counters: StepCounters) -> Call:
        names = [self._name(leaf) for leaf, _ in bound]
        categories = [row(CATEGORIES, type(leaf)) for leaf, _ in bound]

        def sequence(groups: Groups) -> Spans:
            return self._recorder.sequence(names, track, groups=groups)

        return timed_calls([call_chain(*calls).steps for _, calls in bound], categories, sequence, counters)

    def _name(self, leaf: Leaf) -> int:
        op = leaf.ops[0] if leaf.ops else None
        label, output = LeafLabel.of(leaf)
        about = {"instruction": type(leaf).__name__, "output": output} | ({"op": op.type} if op else {})
        category = row(CATEGORIES, type(leaf))
        return self._recorder.name(label, category, **about, **self._about)
