"""TracedMessages: records messages between hosts, for a process whose trace is recorded.

A send is a span; it and the arrival, which the receiver detects when it waits, are the ends of a flow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import count
from time import perf_counter_ns
from zlib import crc32

import numpy as np

from gcl.torch.several_hosts.host_transport import HostTransport, Messages
from gcl.torch.work import GclWork
from popdist_py import trace
from popdist_py.trace import Category, Kind, Recorder
from popdist_py.trace.records import key_of


def messages_of(transport: HostTransport, rank: int, hosts: list[list[int]]) -> Messages:
    """The messages of ``transport``; they are recorded if this process records a trace."""
    recorder = trace.recorder()
    return transport if recorder is None else TracedMessages(recorder, transport, rank, hosts)


class TracedMessages:
    """Both ranks of a message number it equally: by group, ranks and tag, and its place among all of these."""

    def __init__(self, recorder: Recorder, transport: HostTransport, rank: int, hosts: list[list[int]]) -> None:
        self._recorder, self._transport, self._rank = recorder, transport, rank
        self._group = f"{recorder.serial(f'messages between {hosts}')} {hosts}"
        self._flow = recorder.name("message", Category.COLLECTIVES)
        self._indices: defaultdict[tuple[str, int, int], count[int]] = defaultdict(count)

    def send(self, data: np.ndarray, target: int, tag: int) -> GclWork:
        """Begin to send ``data``."""
        index = next(self._indices["send", target, tag])
        name = self._name("send", data.nbytes, self._rank, target, tag)
        with self._recorder.span(name, value=index):
            self._end(Kind.FLOW_OUT, (self._rank, target, tag), index)
            return self._transport.send(data, target, tag)

    def receive(self, out: np.ndarray, source: int | None, tag: int, then: Callable[[], None]) -> GclWork:
        """Begin to receive into ``out``; messages of one rank with one tag arrive in the order of their receives."""
        early = None if source is None else next(self._indices["receive", source, tag])

        def arrived(rank: int) -> None:
            sender = rank if source is None else source
            index = next(self._indices["receive", sender, tag]) if early is None else early
            self._recorder.instant(self._name("receive", out.nbytes, sender, self._rank, tag), value=index)
            self._end(Kind.FLOW_IN, (sender, self._rank, tag), index)

        work = self._transport.receive(out, source, tag, then)
        work.when_done(arrived)
        return work

    def _name(self, what: str, nbytes: int, source: int, target: int, tag: int) -> int:
        return self._recorder.name(what, Category.COLLECTIVES, bytes=nbytes, source=source, target=target, tag=tag)

    def _end(self, kind: Kind, ends: tuple[int, int, int], index: int) -> None:
        now = perf_counter_ns()
        number = crc32(f"{self._group} {ends}".encode()) >> 1 << 32 | index & 0xFFFFFFFF
        self._recorder.record(key_of(kind, self._flow), now, now, number)
