"""CollectiveCalls: collectives on all instances: which came last, how long the others waited, the transfer time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.trace.process_trace import Name
from ipu_emu.trace.run import Run
from popdist_py.trace.records import Category


@dataclass(frozen=True)
class CollectiveCalls:
    """All calls of one kind, size and group: arrays [calls, instances] of nanoseconds.

    ``instances`` are those that took part. A rank waits until the last one has arrived; from then on data move.
    """

    name: str
    about: Mapping[str, Any]
    instances: Sequence[int]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]

    @property
    def nbytes(self) -> int:
        """Bytes of the input of all local replicas of one instance."""
        return int(self.about.get("bytes", 0))

    @property
    def last(self) -> NDArray[np.intp]:
        """For each call, the index in ``instances`` of the one that came last."""
        return np.asarray(np.argmax(self.begins, 1))

    @property
    def waits(self) -> NDArray[np.int64]:
        """Nanoseconds that each instance waited for the last one, [calls, instances]."""
        arrived = self.begins.max(1, keepdims=True)
        return np.asarray(np.minimum(arrived, self.ends) - self.begins)

    @property
    def moves(self) -> NDArray[np.int64]:
        """Nanoseconds after the last arrival, [calls, instances]."""
        return np.asarray(self.ends - self.begins - self.waits)


def collective_calls(run: Run) -> Sequence[CollectiveCalls]:
    """The collectives of all instances, by kind, size and group, those that took the most time first."""
    groups: dict[tuple[Any, ...], list[tuple[int, Name, NDArray[Any]]]] = {}
    for index, process in enumerate(run.instances):
        names = {
            number: name
            for number, name in process.trace.names.items()
            if name.category == Category.COLLECTIVES.value and "communicator" in name.args
        }
        spans = process.spans[np.isin(process.spans["name"], np.array(list(names), np.uint32))]
        for number in np.unique(spans["name"]):
            name = names[int(number)]
            key = (name.name, *(str(name.args.get(part)) for part in ("communicator", "bytes", "operator", "group")))
            groups.setdefault(key, []).append((index, name, spans[spans["name"] == number]))
    calls = [call for parts in groups.values() for call in _matched(parts)]
    return sorted(calls, key=lambda call: -int((call.ends - call.begins).sum()))


def _matched(parts: Sequence[tuple[int, Name, NDArray[Any]]]) -> Iterator[CollectiveCalls]:
    """The calls that all these instances made, by their number; incomplete ones are left out."""
    numbers = parts[0][2]["value"]
    for _, _, spans in parts[1:]:
        numbers = np.intersect1d(numbers, spans["value"])
    if not len(numbers):
        return
    rows = [_in_order(spans, np.unique(numbers)) for *_, spans in parts]
    begins, ends = (np.stack([row[side] for row in rows], 1) for side in ("begin", "end"))
    yield CollectiveCalls(parts[0][1].name, parts[0][1].args, [index for index, *_ in parts], begins, ends)


def _in_order(spans: NDArray[Any], numbers: NDArray[np.int64]) -> NDArray[Any]:
    spans = spans[np.argsort(spans["value"], kind="stable")]
    return spans[np.searchsorted(spans["value"], numbers)]
