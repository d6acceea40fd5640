"""InstructionTrace: the spans of instructions in the trace of a process, one after the other without gaps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from threading import get_ident
from time import perf_counter_ns
from typing import Any, cast

import numpy as np

from ipu_emu.engine.calls.step_counters import StepCounters
from ipu_emu.ops import Call
from ipu_emu.ops.core.op_definition import call_chain
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
from popdist_py.trace.records import LONGEST_SEQUENCE, RECORD_WORDS, VALUE

#: Runs the calls and writes the times to these words, beginning at this index.
_StampedCalls = Callable[[memoryview, int], None]

_FUNCTION = """\
def bind({names}):
    def run(words, start):
        {lines}
    return run
"""


def stamped_calls(groups: Sequence[Sequence[Call]]) -> _StampedCalls:
    """Run the calls of each group in order, then write the time: one word for each group.

    Python specialises each call site for the function that it calls. A loop over calls has one call site for all of
    them; a function that names every call has one for each, which makes calls faster.

    A time stamp takes 0.2 us of a step. So after some rounds consecutive short instructions share one time stamp, and
    their time is divided between them in the proportions of these rounds.
    """
    names: dict[str, Any] = {"now": perf_counter_ns}
    lines = list[str]()
    for position, group in enumerate(groups):
        calls = {f"call{len(names) + index}": call for index, call in enumerate(group)}
        names |= calls
        lines += [*(f"{name}()" for name in calls), f"words[start + {position}] = now()"]
    namespace: dict[str, Any] = {}
    text = _FUNCTION.format(names=", ".join(names), lines="\n        ".join(lines))
    exec(compile(text, "<calls of instructions>", "exec"), namespace)
    run: _StampedCalls = namespace["bind"](**names)
    return run


#: Rounds in which every instruction has its own time stamp.
MEASURED_ROUNDS = 32
#: Nanoseconds up to which a group of instructions shares a time stamp, and up to which one always joins the next.
_TOGETHER, _SHORT = 20_000, 2_000

#: Nanoseconds of instructions, by groups that share a time stamp.
_Groups = Sequence[Sequence[int]]


def short_ones_together(durations: Sequence[int], kinds: Sequence[object]) -> _Groups:
    """The groups of instructions with these durations; instructions of a group are of one kind."""
    groups: list[list[int]] = []
    kind: object = None
    for own, duration in zip(kinds, durations, strict=True):
        total = sum(groups[-1]) if groups else 0
        if groups and own == kind and (total + duration <= _TOGETHER or total <= _SHORT):
            groups[-1].append(duration)
        else:
            groups.append([duration])
        kind = own
    return groups


def timed_calls(
    calls: Sequence[Sequence[Call]],
    kinds: Sequence[object],
    sequence: Callable[[_Groups], Spans],
    counters: StepCounters,
) -> Call:
    """One call that runs the calls of all instructions in order and records when they ended.

    Only instructions of one of ``kinds`` are timed together; ``sequence`` makes their spans.
    """
    now, this_thread, spans, stamped = perf_counter_ns, get_ident, sequence([]), stamped_calls(calls)
    left, measured = MEASURED_ROUNDS if len(calls) > 1 else 0, list[list[int]]()
    words, places, thread = memoryview(b""), cast(Iterator[int], iter(())), 0

    def run() -> None:
        nonlocal words, places, thread
        start = next(places, -1)
        if start < 0 or thread != this_thread():
            words, places = spans.rounds(first=thread != this_thread())
            start, thread = next(places), this_thread()
        if counters.micro_batch:
            words[start + VALUE] = counters.micro_batch << 32 | spans.count
        words[start] = now()
        stamped(words, start + RECORD_WORDS)
        if left:
            learn([words[start], *words[start + RECORD_WORDS : start + RECORD_WORDS + len(calls)]])

    def learn(bounds: list[int]) -> None:
        nonlocal left, spans, stamped, places
        left -= 1
        measured.append(bounds)
        if not left:
            groups = short_ones_together(np.median(np.diff(measured), 0).astype(int).tolist(), kinds)
            remaining = iter(calls)
            together = [[call for part in islice(remaining, len(group)) for call in part] for group in groups]
            spans, stamped, places = sequence(groups), stamped_calls(together), iter(())
            measured.clear()

    return run


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

        def sequence(groups: _Groups) -> Spans:
            return self._recorder.sequence(names, track, groups=groups)

        return timed_calls([call_chain(*calls).steps for _, calls in bound], categories, sequence, counters)

    def _name(self, leaf: Leaf) -> int:
        op = leaf.ops[0] if leaf.ops else None
        label, output = LeafLabel.of(leaf)
        about = {"instruction": type(leaf).__name__, "output": output} | ({"op": op.type} if op else {})
        category = row(CATEGORIES, type(leaf))
        return self._recorder.name(label, category, **about, **self._about)
