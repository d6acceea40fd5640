"""Reduction: contributions combined in one fixed balanced tree over the index in the group.

Neighbours first, then pairs of neighbours, and so on, whichever rank owns them:

    index     0   1   2   3   4   5   6
               \\ /     \\ /     \\ /    |
    stride 1    +       +       +     |
                 \\     /         \\   /
    stride 2        +              +
                     \\            /
    stride 4               +

Any aligned block of 2^k indices is a subtree, so a process (or a host) may first combine its own contributions, and
the result has the same bits for every distribution of replicas. Half types are widened to float32, combined, and
rounded once. Elements are processed in blocks that fit the L1 cache.

The sequence of loops is decided once per call and stored as a ``recipe``, which the kernel carries out. The kernel
takes addresses, because most of the memory belongs to other processes, and is independent of the dtype.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from gcl.core.operators import Operator
from gcl.kernels.copies import STREAMED_BYTES, copy_bytes, stream_bytes
from gcl.kernels.element_loops import DIVIDE, IN_PLACE, MORE, ONTO, ROUND, SQUARE, SUM, loop, loops_of
from gcl.kernels.jit import bare, bare_part

__all__ = ["BLOCK", "new_scratch", "recipe", "reduce_range", "subtrees"]

BLOCK = 2048  # elements at most: 8 KiB of float32, of which three fit the smallest L1 cache
_LEAST_BLOCK = 256
_BLOCK_BYTES = 16384  # of all contributions to a block, which stay in the L1 cache until they are written
_ROW = 8 * BLOCK  # bytes of an accumulator, for the widest dtype
_LEVELS = 34  # deeper than any tree over 2^31 replicas

# Words of a recipe; steps follow, each (loop, node, accumulator).
_ITEM, _LOOPS, _OUT_ITEM, _OUT_LOOPS, _DIVISOR, _COUNT, _BLOCK, _STEPS, _FIRST = range(9)
#: Operators that add several leaves in one loop; and the loop that combines sums, where it is not MORE.
_ADDING = {Operator.ADD, Operator.MEAN, Operator.LOCAL}
_MORE = {
    Operator.MUL: MORE + 1,
    Operator.MIN: MORE + 2,
    Operator.LOGICAL_AND: MORE + 2,
    Operator.MAX: MORE + 3,
    Operator.LOGICAL_OR: MORE + 3,
}


def subtrees(start: int, stop: int) -> list[tuple[int, int]]:
    """Cut ``[start, stop)`` into its largest aligned blocks, [(first index, size), ...].

    ``subtrees(3, 8)`` is ``[(3, 1), (4, 4)]``: the parts of the tree that one process can combine by itself.
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
    """Memory for the accumulators of ``reduce_range``; one per thread."""
    return np.empty(_LEVELS * _ROW, np.uint8)


@lru_cache(maxsize=1024)
def recipe(
    operator: Operator, sizes: tuple[int, ...], source: np.dtype[Any], target: np.dtype[Any], divisor: int
) -> np.ndarray:
    """The loops that combine contributions of dtype ``source`` into ``target``, as words for ``reduce_range``.

    ``sizes``: number of leaves in each contribution, in index order; ``divisor``: what MEAN divides by. The dtypes
    are equal, or one is the dtype in which the other is summed. The array is cached: do not modify it.
    """
    steps = _steps(operator, sizes)
    # eight tensors are added 1.3 times as fast as in blocks of BLOCK
    block = max(_LEAST_BLOCK, min(BLOCK, _BLOCK_BYTES // (len(sizes) * source.itemsize)))
    fixed = [source.itemsize, loops_of(source), target.itemsize, loops_of(target)]
    return np.array([*fixed, divisor, len(sizes), block, len(steps), *np.ravel(steps)], np.int64)


def _steps(operator: Operator, sizes: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """The loops that combine one block of all contributions into the first accumulator."""
    steps: list[tuple[int, int, int]] = []
    stack: list[tuple[int, int]] = []  # of subtrees: (first leaf, number of leaves)
    node = position = 0
    while node < len(sizes):
        width = _width(sizes[node:], position) if operator in _ADDING else 1
        leaves = sizes[node] if width == 1 else width
        steps.append((SUM + width.bit_length() - 1, node, len(stack)))
        if operator is Operator.SQUARE_ADD and leaves == 1:
            steps.append((SQUARE, node, len(stack)))
        stack.append((position, leaves))
        node, position = node + width, position + leaves
        while len(stack) > 1 and (node == len(sizes) or _siblings(*stack[-2:])):
            stack.pop()
            stack[-1] = stack[-1][0], 2 * stack[-1][1]
            steps.append((_MORE.get(operator, MORE), node, len(stack) - 1))
    return [*steps, (DIVIDE, node, 0)] if operator is Operator.MEAN else steps


def _width(sizes: tuple[int, ...], position: int) -> int:
    """Number of next leaves that one loop may add: 8, 4, 2 or 1."""
    fits = (width for width in (8, 4, 2) if position % width == 0 and sizes[:width] == (1,) * width)
    return next(fits, 1)


def _siblings(left: tuple[int, int], right: tuple[int, int]) -> bool:
    return left[1] == right[1] and left[0] % (2 * left[1]) == 0


@bare_part
def _in_place(nodes: Any, count: int, destinations: Any, copies: int) -> bool:
    same = copies == count
    for i in range(copies):
        same = same and nodes[i] == destinations[i]
    return same


@bare_part
def _in_one_pass(recipe: Any, nodes: Any, destinations: Any, copies: int, start: int, n: int) -> bool:
    """If this reduction adds two or four leaves in place, or up to eight into one destination, do it in one loop.

    Without blocks it is twice as fast within the caches, 1.4 times beyond. Eight leaves in place are faster in
    blocks: cache lines of eight tensors at the same offset in a page evict each other from the L1 cache before they
    are written.
    """
    what, count, at, offset = recipe[_FIRST], recipe[_COUNT], nodes.ctypes.data, start * recipe[_ITEM]
    if recipe[_STEPS] > 1 or recipe[_LOOPS] != recipe[_OUT_LOOPS]:
        return False
    if (count == 2 or count == 4) and _in_place(nodes, count, destinations, copies):
        loop(recipe[_LOOPS], IN_PLACE + count // 4, at, offset, n, 1, 0)
        return True
    if what < ONTO and copies == 1 and count * n * recipe[_ITEM] < STREAMED_BYTES:
        loop(recipe[_LOOPS], ONTO + what, at, offset, n, 1, destinations[0] + offset)
        return True
    return False


@bare
def reduce_range(
    recipe: Any, nodes: Any, destinations: Any, copies: int, start: int, stop: int, scratch: Any
) -> None:
    """Reduce elements [start, stop) of the contributions and store them at each of ``copies`` destinations.

    ``nodes``, ``destinations``: addresses of element 0. Every node is read before any destination of the same block
    is written, so a destination may also be a node.
    """
    if stop <= start or _in_one_pass(recipe, nodes, destinations, copies, start, stop - start):
        return
    item, sums, block = recipe[_OUT_ITEM], scratch.ctypes.data, recipe[_BLOCK]
    streams = copies == 1 and recipe[_COUNT] * (stop - start) * recipe[_ITEM] >= STREAMED_BYTES
    for low in range(start, stop, block):
        n = min(block, stop - low)
        for step in range(_FIRST, _FIRST + 3 * recipe[_STEPS], 3):
            what, row = recipe[step], sums + recipe[step + 2] * _ROW
            at = nodes.ctypes.data + 8 * recipe[step + 1] if what < ONTO else row + _ROW
            loop(recipe[_LOOPS], what, at, low * recipe[_ITEM], n, recipe[_DIVISOR], row)
        first = sums + _ROW if streams else destinations[0] + low * item
        loop(recipe[_OUT_LOOPS], ROUND, sums, 0, n, 1, first)
        if streams:
            stream_bytes(destinations[0] + low * item, first, n * item)
        for copy in range(1, copies):
            copy_bytes(destinations[copy] + low * item, first, n * item)
