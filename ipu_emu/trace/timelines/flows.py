"""Flow: a transfer between threads or processes, of which both ends were recorded with one name and number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ipu_emu.trace.run import Process, Run
from popdist_py.trace.records import Kind


@dataclass(frozen=True)
class Flow:
    """``sent`` and ``received`` are nanoseconds since the run began; the threads are those of the two processes."""

    name: str
    sender: Process
    sender_thread: int
    sent: int
    receiver: Process
    receiver_thread: int
    received: int

    @property
    def is_possible(self) -> bool:
        """Whether it was received after it was sent, within the error of the clocks."""
        return self.sent <= self.received + self.sender.error + self.receiver.error


def flows(run: Run) -> Sequence[Flow]:
    """All transfers with both ends, in the order in which they were sent; the first end of each kind counts."""
    ends: dict[Kind, dict[tuple[str, int], tuple[Process, int, int]]] = {Kind.FLOW_OUT: {}, Kind.FLOW_IN: {}}
    for process in run.processes:
        for kind, known in ends.items():
            for record in process.records[process.records["kind"] == kind]:
                key = process.trace.names[int(record["name"])].name, int(record["value"])
                known.setdefault(key, (process, int(record["thread"]), int(record["begin"])))
    pairs = ((key, sent, ends[Kind.FLOW_IN].get(key)) for key, sent in ends[Kind.FLOW_OUT].items())
    transfers = [Flow(name, *sent, *received) for (name, _), sent, received in pairs if received]
    return sorted(transfers, key=lambda flow: flow.sent)
