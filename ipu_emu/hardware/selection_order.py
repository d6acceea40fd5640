"""Selection order: the order in which the shards of a model are placed on the IPUs of a device.

n = 8, a ladder from above     ZIGZAG          SNAKE           HOOF
  6 7                          6 7             7 6             3 4
  4 5                          4 5             4 5             2 5
  2 3                          2 3             3 2             1 6
  0 1                          0 1             0 1             0 7
a cell shows the shard of the IPU at that place
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum


class SelectionOrder(Enum):
    """The orders, with TensorFlow's names."""

    AUTO = 0
    ZIGZAG = 1
    SNAKE = 2
    HOOF = 3


def shard_order(order: SelectionOrder, ipus: int, stages: Sequence[int] | None = None) -> tuple[int, ...]:
    """The IPU of each shard; ``stages`` is the mapping of a pipeline, on which AUTO depends."""
    rule = _RULES[chosen_order(order, stages)]
    return tuple(rule(shard, ipus) for shard in range(ipus))


def chosen_order(order: SelectionOrder, stages: Sequence[int] | None) -> SelectionOrder:
    """AUTO selects SNAKE for a pipeline whose stages are on 0, 1, 2, ..., else ZIGZAG."""
    if order is not SelectionOrder.AUTO:
        return order
    in_order = stages is not None and list(stages) == list(range(len(stages)))
    return SelectionOrder.SNAKE if in_order else SelectionOrder.ZIGZAG


def _snake(shard: int, ipus: int) -> int:
    """The IPU of a shard: along a rung, up, back along the next rung; the last row may have a single IPU."""
    turned = shard ^ 1 if shard % 4 >= 2 else shard
    return turned if turned < ipus else shard


def _hoof(shard: int, ipus: int) -> int:
    """The IPU of a shard: up one rail, then down the other."""
    half = ipus // 2
    return 2 * shard if shard < ipus - half else 2 * (ipus - 1 - shard) + 1


_RULES = {SelectionOrder.ZIGZAG: lambda shard, ipus: shard, SelectionOrder.SNAKE: _snake, SelectionOrder.HOOF: _hoof}
