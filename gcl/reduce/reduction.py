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

from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from gcl.core.operators import Operator
from gcl.kernels.copies import STREAMED_BYTES, copy_bytes, stream_bytes
from gcl.kernels.element_loops import ElementLoop, loop, loops_of
from gcl.kernels.jit import bare, bare_part

BLOCK = 2048  # elements at most: 8 KiB of float32, of which three fit the smallest L1 cache
_LEAST_BLOCK = 256
_BLOCK_BYTES = 16384  # of all contributions to a block, which stay in the L1 cache until they are written
_ROW = 8 * BLOCK  # bytes of an accumulator, for the widest dtype
_LEVELS = 34  # deeper than any tree over 2^31 replicas

#: Operators that add several leaves in one loop.
_ADDING = {Operator.ADD, Operator.MEAN, Operator.LOCAL}
#: The loop that combines two sums, where it is not ADD.
_COMBINING = {
    Operator.MUL: ElementLoop.MULTIPLY,
    Operator.MIN: ElementLoop.MINIMUM,
    Operator.LOGICAL_AND: ElementLoop.MINIMUM,
    Operator.MAX: ElementLoop.MAXIMUM,
    Operator.LOGICAL_OR: ElementLoop.MAXIMUM,
}


class Recipe(IntEnum):
    """Index of each word of a recipe."""

    ITEMSIZE = 0  # bytes of an element of the contributions
    LOOPS = 1  # address of the loops of their dtype
    OUT_ITEMSIZE = 2  # the same for the destinations
    OUT_LOOPS = 3
    DIVISOR = 4
    COUNT = 5  # number of contributions
    BLOCK = 6  # elements of a block
    STEPS = 7  # number of steps
    FIRST = 8  # the first step


class _LoopWord(IntEnum):
    """Index of each word of a step of a recipe."""

    WHAT = 0  # an ElementLoop
    NODE = 1  # the first contribution that it takes
    LEVEL = 2  # of the accumulator


_LOOP = len(_LoopWord)


class Subtree(NamedTuple):
    """A part of the tree of a reduction: the index of its first leaf, and how many it has."""

    first: int
    leaves: int


def subtrees(start: int, stop: int) -> list[Subtree]:
    """Cut ``[start, stop)`` into its largest aligned subtrees.

    ``subtrees(3, 8)`` is ``[(3, 1), (4, 4)]``: the parts of the tree that one process can combine by itself.
    """
    trees = []
    while start < stop:
        size = start & -start or 1 << (stop - start).bit_length()
        while start + size > stop:
            size //= 2
        trees.append(Subtree(start, size))
        start += size
    return trees


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
    stack: list[Subtree] = []
    node = position = 0
    while node < len(sizes):
        width = _width(sizes[node:], position) if operator in _ADDING else 1
        leaves = sizes[node] if width == 1 else width
        steps.append((ElementLoop.SUM + width.bit_length() - 1, node, len(stack)))
        if operator is Operator.SQUARE_ADD and leaves == 1:
            steps.append((ElementLoop.SQUARE, node, len(stack)))
        stack.append(Subtree(position, leaves))
        node, position = node + width, position + leaves
        while len(stack) > 1 and (node == len(sizes) or _siblings(*stack[-2:])):
            stack.pop()
            stack[-1] = Subtree(stack[-1].first, 2 * stack[-1].leaves)
            steps.append((_COMBINING.get(operator, ElementLoop.ADD), node, len(stack) - 1))
    return [*steps, (ElementLoop.DIVIDE, node, 0)] if operator is Operator.MEAN else steps


def _width(sizes: tuple[int, ...], position: int) -> int:
    """Number of next leaves that one loop may add: 8, 4, 2 or 1."""
    fits = (width for width in (8, 4, 2) if position % width == 0 and sizes[:width] == (1,) * width)
    return next(fits, 1)


def _siblings(left: Subtree, right: Subtree) -> bool:
    return left.leaves == right.leaves and left.first % (2 * left.leaves) == 0


@bare_part
def _in_place(nodes: Any, count: int, destinations: Any, copies: int) -> bool:
    same = copies == count
    for i in range(copies):
        same = same and nodes[i] == destinations[i]
    return same


@bare_part
def _in_one_pass(recipe: Any, nodes: Any, destinations: Any, copies: int, start: int, n: int) -> bool:
    """If this adds, or averages, two or four leaves in place, or adds up to eight into one destination: in one loop.

    Without blocks it is twice as fast within the caches, 1.4 times beyond. Eight leaves in place are faster in
    blocks: cache lines of eight tensors at the same offset in a page evict each other from the L1 cache before they
    are written.
    """
    what, count = recipe[Recipe.FIRST + _LoopWord.WHAT], recipe[Recipe.COUNT]
    at, offset = nodes.ctypes.data, start * recipe[Recipe.ITEMSIZE]
    divides = recipe[Recipe.STEPS] == 2 and recipe[Recipe.FIRST + _LOOP + _LoopWord.WHAT] == ElementLoop.DIVIDE
    if (recipe[Recipe.STEPS] > 1 and not divides) or recipe[Recipe.LOOPS] != recipe[Recipe.OUT_LOOPS]:
        return False
    if (count == 2 or count == 4) and _in_place(nodes, count, destinations, copies):
        first = ElementLoop.MEAN_IN_PLACE if divides else ElementLoop.IN_PLACE
        loop(recipe[Recipe.LOOPS], first + count // 4, at, offset, n, recipe[Recipe.DIVISOR], 0)
        return True
    if (
        not divides
        and what < ElementLoop.ONTO
        and copies == 1
        and count * n * recipe[Recipe.ITEMSIZE] < STREAMED_BYTES
    ):
        loop(recipe[Recipe.LOOPS], ElementLoop.ONTO + what, at, offset, n, 1, destinations[0] + offset)
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
    item, sums, block = recipe[Recipe.OUT_ITEMSIZE], scratch.ctypes.data, recipe[Recipe.BLOCK]
    streams = copies == 1 and recipe[Recipe.COUNT] * (stop - start) * recipe[Recipe.ITEMSIZE] >= STREAMED_BYTES
    for low in range(start, stop, block):
        n = min(block, stop - low)
        for number in range(recipe[Recipe.STEPS]):
            step = Recipe.FIRST + _LOOP * number
            what, row = recipe[step + _LoopWord.WHAT], sums + recipe[step + _LoopWord.LEVEL] * _ROW
            at = nodes.ctypes.data + 8 * recipe[step + _LoopWord.NODE] if what < ElementLoop.ONTO else row + _ROW
            loop(recipe[Recipe.LOOPS], what, at, low * recipe[Recipe.ITEMSIZE], n, recipe[Recipe.DIVISOR], row)
        first = sums + _ROW if streams else destinations[0] + low * item
        loop(recipe[Recipe.OUT_LOOPS], ElementLoop.ROUND, sums, 0, n, 1, first)
        if streams:
            stream_bytes(destinations[0] + low * item, first, n * item)
        for copy in range(1, copies):
            copy_bytes(destinations[copy] + low * item, first, n * item)
