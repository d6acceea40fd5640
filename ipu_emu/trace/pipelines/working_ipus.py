"""WorkingIpus: the number of IPUs that work at the same time, as the values of a counter."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate


def working_ipus(spans: Iterable[tuple[int, int]]) -> Sequence[tuple[int, int]]:
    """The times at which the number of open ``spans`` (begin, end) changes, each with the new number."""
    changes: defaultdict[int, int] = defaultdict(int)
    for begin, end in spans:
        changes[begin] += 1
        changes[end] -= 1
    times = sorted(time for time, change in changes.items() if change)
    return list(zip(times, accumulate(changes[time] for time in times), strict=True))
