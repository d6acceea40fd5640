"""reduction: contributions combined in one fixed balanced tree over the index in the group.

Neighbours first, then neighbours of neighbours, whoever owns them:

    index     0   1   2   3   4   5   6
               \\ /     \\ /     \\ /    |
    stride 1    +       +       +     |
                 \\     /         \\   /
    stride 2        +              +
                     \\            /
    stride 4               +

Any aligned block of 2^k indices is a subtree, so a process (or a host) may combine what it has first, and the
result has the same bits however replicas are spread. Half types are widened to float32, combined, and rounded
once. Work goes block by block, small enough for the first cache.

Kernels take addresses, because the memory is mostly another process's; ``source`` and ``target`` are empty arrays
that carry only a dtype (uint16 stands for float16, int16 for
bfloat16).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gcl.copies import STREAMED_BYTES, copy_bytes, stream_bytes
from gcl.dtypes import sum_dtype
from gcl.jit import jit, part
from gcl.lanes import fetch, first_of, narrowed, put, total

__all__ = ["BLOCK", "WORK_WORDS", "new_scratch", "reduce_range", "subtrees"]

BLOCK = 2048  # elements at most: 8 KiB of float32, three of them fit the smallest first cache
_LEAST_BLOCK = 256
_BLOCK_BYTES = 16384  # of all contributions to a block, which stay in the first cache until they are written again
_LEVELS = 34  # deeper than any tree over 2^31 replicas
WORK_WORDS = 2 * _LEVELS

_ADD, _MEAN, _MUL, _MIN, _MAX, _SQUARE_ADD = range(6)  # gcl.operators.CODES


def subtrees(start: int, stop: int) -> list[tuple[int, int]]:
    """Cut ``[start, stop)`` into its largest aligned blocks, [(first index, size), ...].

    ``subtrees(3, 8)`` is ``[(3, 1), (4, 4)]``: what a process may combine by itself without leaving the tree.
    """
    blocks = []
    while start < stop:
        size = start & -start or 1 << (stop - start).bit_length()
        while start + size > stop:
            size //= 2
        blocks.append((start, size))
        start += size
    return blocks


def new_scratch(dtype: np.dtype[Any]) -> np.ndarray:
    """Accumulators for one caller: [levels, BLOCK] of the dtype in which ``dtype`` is summed."""
    return np.empty((_LEVELS, BLOCK), sum_dtype(dtype))


@part
def _sum_into(addresses: Any, n: int, source: Any, out: int, target: Any) -> None:
    """Add ``n`` elements behind the addresses, in tree order, into ``out``."""
    for i in range(n):
        put((out,), i, narrowed(total(fetch(addresses, i, source)), target), target)


@part
def _load(nodes: Any, width: int, start: int, n: int, source: Any, out: int, target: Any) -> None:
    """Sum the first ``width`` (1, 2, 4 or 8) contributions into ``out``, elements of the target's dtype."""
    at = nodes[:width] + start * source.itemsize
    if width == 1:
        _sum_into(first_of(at, 1), n, source, out, target)
    elif width == 2:
        _sum_into(first_of(at, 2), n, source, out, target)
    elif width == 4:
        _sum_into(first_of(at, 4), n, source, out, target)
    else:
        _sum_into(first_of(at, 8), n, source, out, target)


@part
def _combine(left: Any, right: Any, n: int, code: int) -> None:
    """``left = left (operator) right``; NaN wins in MIN and MAX, as in numpy."""
    if code == _MUL:
        for i in range(n):
            left[i] = left[i] * right[i]
    elif code == _MIN:
        for i in range(n):
            left[i] = right[i] if right[i] < left[i] or right[i] != right[i] else left[i]
    elif code == _MAX:
        for i in range(n):
            left[i] = right[i] if right[i] > left[i] or right[i] != right[i] else left[i]
    else:
        for i in range(n):
            left[i] = left[i] + right[i]


@part
def _square(values: Any, n: int) -> None:
    for i in range(n):
        values[i] = values[i] * values[i]


@part
def _width(sizes: Any, first: int, count: int, position: int, code: int) -> int:
    """How many leaves from ``first`` on one fused loop may take: 8, 4, 2 or 1."""
    if code > _MEAN:
        return 1
    for width in (8, 4, 2):
        if position % width == 0 and first + width <= count and _single(sizes[first:], width):
            return width
    return 1


@part
def _single(sizes: Any, count: int) -> bool:
    """Say whether the first ``count`` nodes are leaves."""
    single = True
    for i in range(count):
        single = single and sizes[i] == 1
    return single


@part
def _row(scratch: Any, level: int) -> Any:
    """Address of one accumulator, as signed as all others are."""
    return np.int64(scratch[level].ctypes.data)


@part
def _tree(
    nodes: Any, sizes: Any, count: int, start: int, n: int, code: int, source: Any, scratch: Any, work: Any
) -> None:
    """Combine elements [start, start + n) of all nodes into ``scratch[0]``.

    ``work`` holds, per level of the stack, where its subtree starts and how many leaves it has.
    """
    top, node, position = -1, 0, 0
    while node < count:
        width = _width(sizes, node, count, position, code)
        top += 1
        _load(nodes[node:], width, start, n, source, _row(scratch, top), scratch[0])
        leaves = width if width > 1 else sizes[node]
        if code == _SQUARE_ADD and leaves == 1:
            _square(scratch[top], n)
        work[2 * top], work[2 * top + 1] = position, leaves
        position += leaves
        node += width
        while top > 0 and work[2 * top + 1] == work[2 * top - 1] and work[2 * top - 2] % (2 * leaves) == 0:
            top -= 1
            _combine(scratch[top], scratch[top + 1], n, code)
            leaves *= 2
            work[2 * top + 1] = leaves
    while top > 0:
        top -= 1
        _combine(scratch[top], scratch[top + 1], n, code)


@part
def _in_place(nodes: Any, count: int, destinations: Any, copies: int) -> bool:
    same = copies == count
    for i in range(copies):
        same = same and nodes[i] == destinations[i]
    return same


@part
def _sum_in_place(addresses: Any, n: int, source: Any) -> None:
    """Give what is behind all addresses its sum: twice as fast as in blocks within the caches, 1.4 times beyond."""
    for i in range(n):
        put(addresses, i, narrowed(total(fetch(addresses, i, source)), source), source)


@part
def _in_one_pass(
    nodes: Any, count: int, destinations: Any, copies: int, start: int, n: int, source: Any, target: Any
) -> bool:
    """Add two or four leaves in place, or up to eight into one destination, if that is what is asked for.

    Eight in place are quicker in blocks: lines of as many tensors, all at the same place in a page, push each other
    out of the first cache before they are written.
    """
    if (count == 2 or count == 4) and _in_place(nodes, count, destinations, copies):
        at = nodes[:count] + start * source.itemsize
        if count == 2:
            _sum_in_place(first_of(at, 2), n, source)
        else:
            _sum_in_place(first_of(at, 4), n, source)
        return True
    if copies == 1 and (count == 2 or count == 4 or count == 8) and count * n * source.itemsize < STREAMED_BYTES:
        _load(nodes, count, start, n, source, destinations[0] + start * target.itemsize, target)
        return True
    return False


@part
def _block(count: int, item: int) -> int:
    """How many elements are combined at a time: eight tensors 1.3 times as fast as in blocks of BLOCK."""
    return max(_LEAST_BLOCK, min(BLOCK, _BLOCK_BYTES // (count * item)))


@jit
def reduce_range(
    nodes: Any,
    sizes: Any,
    count: int,
    destinations: Any,
    copies: int,
    start: int,
    stop: int,
    code: int,
    divisor: int,
    source: Any,
    target: Any,
    scratch: Any,
    work: Any,
) -> None:
    """Reduce elements [start, stop) of ``count`` nodes and store them at each of ``copies`` destinations.

    ``nodes``, ``destinations``: addresses of element 0; ``sizes``: leaves under each node, in index order;
    ``divisor``: what MEAN divides by. Every node is read before any destination of the same block is written,
    so that a destination may be a node.
    """
    if stop <= start:
        return
    if (
        code == _ADD
        and _single(sizes, count)
        and _in_one_pass(nodes, count, destinations, copies, start, stop - start, source, target)
    ):
        return
    streams = copies == 1 and count * (stop - start) * source.itemsize >= STREAMED_BYTES
    block, rounded = _block(count, source.itemsize), _row(scratch, 1)
    for low in range(start, stop, block):
        n = min(block, stop - low)
        _tree(nodes, sizes, count, low, n, code, source, scratch, work)
        if code == _MEAN:
            for i in range(n):
                scratch[0][i] = scratch[0][i] / divisor
        at, nbytes = low * target.itemsize, n * target.itemsize
        first = rounded if streams else destinations[0] + at
        _round(scratch[0], n, first, target)
        if streams:
            stream_bytes(destinations[0] + at, rounded, nbytes)
        for copy in range(1, copies):
            copy_bytes(destinations[copy] + at, first, nbytes)


@part
def _round(sums: Any, n: int, out: int, target: Any) -> None:
    """Store ``n`` sums as elements of the target's dtype."""
    for i in range(n):
        put((out,), i, narrowed(sums[i], target), target)
