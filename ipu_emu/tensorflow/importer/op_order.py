"""Op order: the ops of a graph in topological order."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Any


def in_order(ops: Sequence[Any], index: dict[str, int]) -> list[Any]:
    """Sort ``ops`` topologically, and otherwise in the order in which they were created.

    TensorFlow adds inputs to existing loops when it differentiates them.
    """
    chosen = {op.name: op for op in ops}
    needs = {
        name: {source.name for source in (*(t.op for t in op.inputs), *op.control_inputs) if source.name in chosen}
        for name, op in chosen.items()
    }
    followers: dict[str, list[str]] = {}
    for name, before in needs.items():
        for needed in before:
            followers.setdefault(needed, []).append(name)
    ready = [(index[name], name) for name, before in needs.items() if not before]
    heapify(ready)
    ordered = []
    while ready:
        _, name = heappop(ready)
        ordered.append(chosen[name])
        for other in followers.get(name, ()):
            needs[other].discard(name)
            if not needs[other]:
                heappush(ready, (index[other], other))
    return ordered
