"""Op order: the ops of a graph in topological order."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Any

__all__ = ["in_order"]


def in_order(ops: Sequence[Any], index: dict[str, int]) -> list[Any]:
    """Sort ``ops`` topologically, and otherwise in the order in which they were created.

    TensorFlow adds inputs to existing loops when it differentiates them.
    """
    chosen = {op.name: op for op in ops}
    needs = {
        name: {one.name for one in (*(t.op for t in op.inputs), *op.control_inputs) if one.name in chosen}
        for name, op in chosen.items()
    }
    followers: dict[str, list[str]] = {}
    for name, before in needs.items():
        for one in before:
            followers.setdefault(one, []).append(name)
    ready = [(index[name], name) for name, before in needs.items() if not before]
    heapify(ready)
    made = []
    while ready:
        _, name = heappop(ready)
        made.append(chosen[name])
        for other in followers.get(name, ()):
            needs[other].discard(name)
            if not needs[other]:
                heappush(ready, (index[other], other))
    return made
