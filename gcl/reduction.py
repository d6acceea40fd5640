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

Kernels take addresses, because the memory is mostly another process's, and know of a dtype what ``gcl.loops`` says.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gcl.copies import STREAMED_BYTES, copy_bytes, stream_bytes
from gcl.jit import jit, part
from gcl.loops import DIVIDE, IN_PLACE, ITEM, MORE, ONTO, ROUND, SQUARE, SUM, loop

__all__ = ["BLOCK", "WORK_WORDS", "new_scratch", "reduce_range", "subtrees"]

BLOCK = 2048  # elements at most: 8 KiB of float32, three of them fit the smallest first cache
_LEAST_BLOCK = 256
_BLOCK_BYTES = 16384  # of all contributions to a block, which stay in the first cache until they are written again
_ROW = 8 * BLOCK  # bytes of an accumulator, whatever is summed
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


def new_scratch() -> np.ndarray:
    """Accumulators for one caller."""
    return np.empty(_LEVELS * _ROW, np.uint8)


@part
def _log2(width: int) -> int:
    """0, 1, 2 or 3 for 1, 2, 4 or 8."""
    return min(width // 2, 2) + width // 8


@part
def _more(code: int) -> int:
    """The loop that combines sums; those after MORE are as the codes from MUL on."""
    return MORE + (code - _MEAN if _MUL <= code <= _MAX else 0)


@part
def _width(sizes: Any, first: int, count: int, position: int, code: int) -> int:
    """How many leaves from ``first`` on one loop may take: 8, 4, 2 or 1."""
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
def _tree(
    nodes: Any, sizes: Any, count: int, start: int, n: int, code: int, source: Any, sums: int, work: Any
) -> None:
    """Combine elements [start, start + n) of all nodes into ``sums``, the first of the accumulators.

    ``work`` holds, per level of the stack, where its subtree starts and how many leaves it has.
    """
    top, node, position = -1, 0, 0
    while node < count:
        width = _width(sizes, node, count, position, code)
        top += 1
        at = nodes.ctypes.data + 8 * node
        loop(source, SUM + _log2(width), at, start * source[ITEM], n, 1, sums + top * _ROW)
        leaves = width if width > 1 else sizes[node]
        if code == _SQUARE_ADD and leaves == 1:
            loop(source, SQUARE, 0, 0, n, 1, sums + top * _ROW)
        work[2 * top], work[2 * top + 1] = position, leaves
        position += leaves
        node += width
        while top > 0 and (
            node == count or (work[2 * top + 1] == work[2 * top - 1] and work[2 * top - 2] % (2 * leaves) == 0)
        ):
            top -= 1
            loop(source, _more(code), sums + (top + 1) * _ROW, 0, n, 1, sums + top * _ROW)
            leaves *= 2
            work[2 * top + 1] = leaves


@part
def _in_place(nodes: Any, count: int, destinations: Any, copies: int) -> bool:
    same = copies == count
    for i in range(copies):
        same = same and nodes[i] == destinations[i]
    return same


@part
def _in_one_pass(
    nodes: Any, count: int, destinations: Any, copies: int, start: int, n: int, source: Any, target: Any
) -> bool:
    """Add two or four leaves in place, or up to eight into one destination, if that is what is asked for.

    Without blocks it is twice as fast within the caches, 1.4 times beyond. Eight in place are quicker in blocks:
    lines of as many tensors, all at the same place in a page, push each other out of the first cache before they are
    written.
    """
    at, offset = nodes.ctypes.data, start * source[ITEM]
    if (count == 2 or count == 4) and _in_place(nodes, count, destinations, copies):
        loop(source, IN_PLACE + count // 4, at, offset, n, 1, 0)
        return True
    same = source[ITEM] == target[ITEM]  # dtypes: stored elements are never as wide as the sums of others
    if (
        same
        and copies == 1
        and (count == 2 or count == 4 or count == 8)
        and count * n * source[ITEM] < STREAMED_BYTES
    ):
        loop(source, ONTO + _log2(count), at, offset, n, 1, destinations[0] + offset)
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
    ``divisor``: what MEAN divides by; ``source``, ``target``: ``gcl.loops.element`` of the nodes and of the
    destinations, which have the same sums. Every node is read before any destination of the same block is written,
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
    item, sums = target[ITEM], scratch.ctypes.data
    streams = copies == 1 and count * (stop - start) * source[ITEM] >= STREAMED_BYTES
    block = _block(count, source[ITEM])
    for low in range(start, stop, block):
        n = min(block, stop - low)
        _tree(nodes, sizes, count, low, n, code, source, sums, work)
        if code == _MEAN:
            loop(target, DIVIDE, 0, 0, n, divisor, sums)
        first = sums + _ROW if streams else destinations[0] + low * item
        loop(target, ROUND, sums, 0, n, 1, first)
        if streams:
            stream_bytes(destinations[0] + low * item, first, n * item)
        for copy in range(1, copies):
            copy_bytes(destinations[copy] + low * item, first, n * item)
