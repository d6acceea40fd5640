"""Step program: what every replica does in a collective, as plain data that prints, runs, and can be priced.

    Exchange          replicas send to each other, all at once, after one sync
      CrossReplicaCopy   one transfer: a slice of every replica, and the replica that each one sends to
    Reduce, Copy      local work between exchanges

All replicas run the same instructions; the differences are in tables with one entry per replica: the fragment of a
buffer that a slice selects, and the destination. Buffers hold fragments of one width, laid end to end:

    input    0  1  2  3      a reduce-scatter has a fragment per member, an all-gather one: the own shard
    output   0               and the reverse
    others   0               one fragment, in transit
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

from gcl.core.groups import Group
from gcl.core.request import Collective

INPUT, OUTPUT = "input", "output"


@dataclass(frozen=True)
class Slice:
    """Elements ``low`` to ``high`` of one fragment of ``buffer``; ``fragment[r]`` is the fragment on replica r."""

    buffer: str
    fragment: tuple[int, ...]
    low: int
    high: int

    @property
    def elements(self) -> int:
        return self.high - self.low

    def bounds(self, replica: int, width: int) -> slice:
        """Where the slice lies in the buffer of ``replica``."""
        start = self.fragment[replica] * width
        return slice(start + self.low, start + self.high)

    def __str__(self) -> str:
        same = len(set(self.fragment)) == 1
        fragment = str(self.fragment[0]) if same else " ".join(map(str, self.fragment))
        return f"{self.buffer}[{fragment}][{self.low}:{self.high}]"


@dataclass(frozen=True)
class CrossReplicaCopy:
    """``source`` of every replica r goes to ``target`` of replica ``to[r]``; ``to[r] == r`` sends nothing.

    ``carries[r]`` names the fragment that r sends by its owner's index in the group; ``stream`` names its ring
    and direction; ``ipu`` is the IPU of each replica that sends and receives. The result of a ``redundant`` transfer
    is not used.
    """

    source: Slice
    target: Slice
    to: tuple[int, ...]
    carries: tuple[int, ...]
    stream: str
    ipu: int = 0
    redundant: bool = False

    def pairs(self) -> Iterator[tuple[int, int]]:
        """(sender, receiver) of every transfer between different replicas."""
        return ((sender, receiver) for sender, receiver in enumerate(self.to) if sender != receiver)

    def __str__(self) -> str:
        to = " ".join(map(str, self.to))
        return f"CrossReplicaCopy {self.source} -> {self.target} to {to} ({self.stream}, IPU {self.ipu})"


@dataclass(frozen=True)
class Exchange:
    """Copies that are made at the same time; on no replica does one read what another writes."""

    copies: tuple[CrossReplicaCopy, ...]

    def elements_by_ipu(self) -> dict[int, int]:
        """Elements that each IPU of a replica sends."""
        sent: dict[int, int] = {}
        for copy in self.copies:
            sent[copy.ipu] = sent.get(copy.ipu, 0) + copy.source.elements
        return sent

    def streams(self) -> dict[str, list[CrossReplicaCopy]]:
        """Copies by the way they go: one per IPU of a replica in each."""
        streams: dict[str, list[CrossReplicaCopy]] = {}
        for copy in self.copies:
            streams.setdefault(copy.stream, []).append(copy)
        return streams

    def __str__(self) -> str:
        return "Exchange\n" + "\n".join(f"  {copy}" for copy in self.copies)


@dataclass(frozen=True)
class Reduce:
    """``target = own (operator) received`` on every replica."""

    own: Slice
    received: Slice
    target: Slice

    def __str__(self) -> str:
        return f"Reduce {self.own} op {self.received} -> {self.target}"


@dataclass(frozen=True)
class Copy:
    """``target = source`` on every replica."""

    source: Slice
    target: Slice

    def __str__(self) -> str:
        return f"Copy {self.source} -> {self.target}"


Step = Exchange | Reduce | Copy


@dataclass(frozen=True)
class StepProgram:
    """The steps of one collective over ``group``, for fragments with ``widths[q]`` elements on IPU q.

    ``orders``: per ring direction pair, the index in the group at each position (empty where no ring is used).
    """

    collective: Collective
    method: str
    group: Group
    widths: tuple[int, ...]
    input_fragments: int
    output_fragments: int
    steps: tuple[Step, ...]
    orders: tuple[tuple[int, ...], ...] = ()

    @property
    def width(self) -> int:
        """Elements of one fragment."""
        return sum(self.widths)

    def fragments(self, buffer: str) -> int:
        """Number of fragments in ``buffer``."""
        if buffer in (INPUT, OUTPUT):
            return self.input_fragments if buffer == INPUT else self.output_fragments
        return self._most.get(buffer, 1)

    @property
    def buffers(self) -> list[str]:
        """Every buffer: input, output, then those in between, by first use."""
        return list(dict.fromkeys([INPUT, OUTPUT, *self._most]))

    @cached_property
    def _most(self) -> dict[str, int]:
        """Fragments of each buffer that the steps name."""
        most: dict[str, int] = {}
        for step in self.steps:
            for part in slices(step):
                most[part.buffer] = max(most.get(part.buffer, 0), max(part.fragment) + 1)
        return most

    @property
    def exchanges(self) -> list[Exchange]:
        """The exchanges, in order."""
        return [step for step in self.steps if isinstance(step, Exchange)]

    def with_exchanges(self, rewritten: Callable[[Exchange], Iterable[Exchange]]) -> StepProgram:
        """This program with every exchange replaced by those that ``rewritten`` makes of it."""
        parts = (rewritten(step) if isinstance(step, Exchange) else [step] for step in self.steps)
        return replace(self, steps=tuple(chain.from_iterable(parts)))

    def elements_sent(self, replica: int) -> int:
        """Elements that ``replica`` sends in all exchanges."""
        return sum(
            copy.source.elements
            for exchange in self.exchanges
            for copy in exchange.copies
            if copy.to[replica] != replica
        )

    def __str__(self) -> str:
        head = f"{self.method} {self.collective} of {self.input_fragments} x {self.width} elements, {self.group}"
        return "\n".join([head, *map(str, self.steps)])


def slices(step: Step) -> list[Slice]:
    """Every slice that ``step`` reads or writes."""
    if isinstance(step, Exchange):
        return [part for copy in step.copies for part in (copy.source, copy.target)]
    if isinstance(step, Reduce):
        return [step.own, step.received, step.target]
    return [step.source, step.target]
