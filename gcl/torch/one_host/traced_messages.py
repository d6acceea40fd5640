"""TracedMessages: records sends and receives, for a process whose trace is recorded.

Each is a span with its bytes, peer and tag; the two of one message are the ends of a flow.
"""

from __future__ import annotations

from time import perf_counter_ns
from zlib import crc32

import numpy as np

from gcl.torch.one_host.mailbox import Letter
from gcl.torch.one_host.point_to_point import PointToPoint, Receive
from gcl.torch.work import GclWork
from gcl.transport.paths.memory_path import MemoryPath
from popdist_py import trace
from popdist_py.trace import Category, Kind, Recorder
from popdist_py.trace.records import key_of


def messages(path: MemoryPath, names: tuple[str, ...]) -> PointToPoint:
    """The sends and receives of a rank; they are recorded if this process records a trace."""
    recorder = trace.recorder()
    return PointToPoint(path, names) if recorder is None else TracedMessages(recorder, path, names)


class TracedMessages(PointToPoint):
    """Both ranks of a message number it equally: by group, ranks and tag, and its index among all of these."""

    def __init__(self, recorder: Recorder, path: MemoryPath, names: tuple[str, ...]) -> None:
        super().__init__(path, names)
        self._recorder, self._rank = recorder, path.rank
        self._group = f"{recorder.serial(f'messages {names}')} {names}"
        self._flow = recorder.name("message", Category.COLLECTIVES)
        self._counts: dict[tuple[int, int, int], int] = {}

    def send(self, data: np.ndarray, target: int, tag: int) -> GclWork:
        """Begin to send the bytes ``data``."""
        begin = perf_counter_ns()
        work = super().send(data, target, tag)
        self._record("send", begin, data.nbytes, (self._rank, target, tag))
        return work

    def _take(self, receive: Receive, source: int, letter: Letter) -> None:
        begin = perf_counter_ns()
        super()._take(receive, source, letter)
        self._record("receive", begin, letter.nbytes, (source, self._rank, letter.tag))

    def _record(self, what: str, begin: int, nbytes: int, ends: tuple[int, int, int]) -> None:
        source, target, tag = ends
        key = ends if what == "send" else (~source, target, tag)  # a rank may send to itself
        self._counts[key] = index = self._counts.get(key, -1) + 1
        number = crc32(f"{self._group} {ends}".encode()) >> 1 << 32 | index & 0xFFFFFFFF
        name = self._recorder.name(what, Category.COLLECTIVES, bytes=nbytes, source=source, target=target, tag=tag)
        end = perf_counter_ns()
        self._recorder.record(key_of(Kind.SPAN, name), begin, end, index)
        at, kind = (begin, Kind.FLOW_OUT) if what == "send" else (end, Kind.FLOW_IN)
        self._recorder.record(key_of(kind, self._flow), at, at, number)
