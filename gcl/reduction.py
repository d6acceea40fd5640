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
from numba import types

from gcl.dtypes import sum_dtype
from gcl.half import bfloat_of_float, float_of_bfloat, float_of_half, half_of_float
from gcl.jit import carray, intrinsic, jit, overload, part, pointer_to

__all__ = ["BLOCK", "WORK_WORDS", "copy_bytes", "new_scratch", "reduce_range", "subtrees", "zero_range"]

BLOCK = 2048  # elements: 8 KiB of float32, three of them fit the smallest first cache
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


_memcpy: Any = types.ExternalFunction("memcpy", types.intp(types.intp, types.intp, types.intp))


@intrinsic
def _pointer(typing_context: Any, address: Any, witness: Any) -> Any:
    """The address as a pointer to elements of the witness's dtype."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return pointer_to(witness.dtype)(types.int64, witness), codegen


def _half_to_sum(value: Any) -> Any:
    return float_of_half(value)


def _bfloat_to_sum(value: Any) -> Any:
    return float_of_bfloat(value)


def _unchanged(value: Any) -> Any:
    return value


def _widen(value: Any) -> Any:
    """A stored element in the dtype of the sums (compiled code only)."""


def _narrow(value: Any, target: Any) -> Any:
    """A sum in the dtype of ``target`` (compiled code only)."""


@overload(_widen)
def _widen_of(value: Any) -> Any:
    return {types.uint16: _half_to_sum, types.int16: _bfloat_to_sum}.get(value, _unchanged)


@overload(_narrow)
def _narrow_to(value: Any, target: Any) -> Any:
    if target.dtype == types.uint16:
        return lambda value, target: half_of_float(value)
    if target.dtype == types.int16:
        return lambda value, target: bfloat_of_float(value)
    return lambda value, target: value


@part
def _load(nodes: Any, first: int, width: int, start: int, n: int, source: Any, sum_: Any, target: Any) -> None:
    """Sum ``width`` (1, 2 or 4) neighbouring contributions, in tree order, into ``sum_`` of the target's dtype."""
    item = source.itemsize
    a = carray(_pointer(nodes[first] + start * item, source), n)
    if width == 1:
        for i in range(n):
            sum_[i] = _narrow(_widen(a[i]), target)
        return
    b = carray(_pointer(nodes[first + 1] + start * item, source), n)
    if width == 2:
        for i in range(n):
            sum_[i] = _narrow(_widen(a[i]) + _widen(b[i]), target)
        return
    c = carray(_pointer(nodes[first + 2] + start * item, source), n)
    d = carray(_pointer(nodes[first + 3] + start * item, source), n)
    for i in range(n):
        sum_[i] = _narrow((_widen(a[i]) + _widen(b[i])) + (_widen(c[i]) + _widen(d[i])), target)


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
    """How many leaves from ``first`` on one fused loop may take: 4, 2 or 1."""
    if code > _MEAN:
        return 1
    for width in (4, 2):
        if position % width == 0 and first + width <= count:
            single = True
            for i in range(first, first + width):
                single = single and sizes[i] == 1
            if single:
                return width
    return 1


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
        _load(nodes, node, width, start, n, source, scratch[top], scratch)
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
def _few_leaves(sizes: Any, count: int, code: int) -> bool:
    """Say whether two or four leaves are added, which one pass can do."""
    few = code == _ADD and (count == 2 or count == 4)
    for i in range(count):
        few = few and sizes[i] == 1
    return few


@part
def _in_place(nodes: Any, count: int, destinations: Any, copies: int) -> bool:
    same = copies == count
    for i in range(copies):
        same = same and nodes[i] == destinations[i]
    return same


@part
def _add_in_place(nodes: Any, count: int, start: int, n: int, source: Any) -> None:
    """Give two or four nodes their sum: twice as fast as in blocks within the caches, 1.4 times beyond."""
    at = start * source.itemsize
    a, b = carray(_pointer(nodes[0] + at, source), n), carray(_pointer(nodes[1] + at, source), n)
    if count == 2:
        for i in range(n):
            total = _narrow(_widen(a[i]) + _widen(b[i]), source)
            a[i] = total
            b[i] = total
        return
    c, d = carray(_pointer(nodes[2] + at, source), n), carray(_pointer(nodes[3] + at, source), n)
    for i in range(n):
        total = _narrow((_widen(a[i]) + _widen(b[i])) + (_widen(c[i]) + _widen(d[i])), source)
        a[i] = total
        b[i] = total
        c[i] = total
        d[i] = total


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
    if stop > start and _few_leaves(sizes, count, code):
        if _in_place(nodes, count, destinations, copies):
            _add_in_place(nodes, count, start, stop - start, source)
            return
        if copies == 1:
            out = carray(_pointer(destinations[0] + start * target.itemsize, target), stop - start)
            _load(nodes, 0, count, start, stop - start, source, out, target)
            return
    for low in range(start, stop, BLOCK):
        n = min(BLOCK, stop - low)
        total = scratch[0]
        _tree(nodes, sizes, count, low, n, code, source, scratch, work)
        if code == _MEAN:
            for i in range(n):
                total[i] = total[i] / divisor
        for copy in range(copies):
            out = carray(_pointer(destinations[copy] + low * target.itemsize, target), n)
            for i in range(n):
                out[i] = _narrow(total[i], target)


@jit
def copy_bytes(to: int, frm: int, n: int) -> None:
    """Copy ``n`` bytes between addresses that do not overlap, or are the same."""
    if to != frm:
        _memcpy(to, frm, n)


@jit
def zero_range(address: int, start: int, stop: int, target: Any) -> None:
    """Set elements [start, stop) after ``address`` to zero."""
    if stop > start:
        carray(_pointer(address + start * target.itemsize, target), stop - start)[:] = 0
