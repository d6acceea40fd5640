"""Recorded: arrays that note what is done with them, so that it can be done again without making arrays.

A function on arrays is called once, when its op is bound, with Recorded in the place of arrays. What it computes
becomes a list of numpy calls, whose results lie in memory that was given beforehand; a result's memory is used again
as soon as the function holds it no more. The function may not look at values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from math import prod
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from ipu_emu.graph import Tensor
from ipu_emu.graph.dtype import FLOAT16
from ipu_emu.ops.core.call_chain import call_chain
from ipu_emu.ops.core.node import Node
from ipu_emu.ops.core.op_definition import BoundOp, Call, Kernel, Workspace

__all__ = ["traced_kernel", "traced_workspace"]

_Array = NDArray[Any]
_ALIGNMENT = 64


#: ``function(node, *inputs)`` makes a tuple of arrays.
_Function = Callable[..., tuple[Any, ...]]


def traced_kernel(function: _Function) -> Kernel:
    """A kernel that makes the calls of ``function`` in the scratch that ``traced_workspace`` asks for."""

    def kernel(bound: BoundOp) -> Call:
        recorder = Tracer(bound.scratch[0].view(np.uint8))
        made = function(bound.node, *(None if a is None else TracedArray(recorder, a) for a in bound.inputs))
        for output, value in zip(bound.outputs, made, strict=True):
            recorder.call(np.copyto, output, value)
        return call_chain(*recorder.steps)

    return kernel


def traced_workspace(function: _Function) -> Workspace:
    """What the results of ``function`` need at one time."""

    def workspace(node: Node) -> list[int]:
        operands = tuple(None if t is None else (t.dtype.name, t.shape) for t in node.inputs)
        return [_workspace_size(_TraceKey(function, repr(sorted(node.op.attributes.items())), operands, node))]

    return workspace


@dataclass(frozen=True)
class _TraceKey:
    """All that a function may look at, in a form that can be compared."""

    function: _Function
    attributes: str
    operands: tuple[tuple[str, tuple[int, ...]] | None, ...]
    node: Node = field(compare=False)


@cache
def _workspace_size(asked: _TraceKey) -> int:
    """float32 elements of scratch; recording a long sequence takes a moment, and the planner asks several times."""
    recorder = Tracer(None)
    asked.function(
        asked.node, *(None if t is None else TracedArray(recorder, _without_memory(t)) for t in asked.node.inputs)
    )
    return -(-recorder.needed // 4)


def _without_memory(tensor: Tensor) -> _Array:
    """An array as kernels see it, without memory."""
    kind = np.dtype(np.float32) if tensor.dtype is FLOAT16 else tensor.dtype.numpy
    return np.broadcast_to(np.zeros((), kind), tensor.shape)


class Tracer:
    """Collects ``steps``; results lie in ``memory`` (bytes), or nowhere where only ``needed`` is asked for."""

    def __init__(self, memory: NDArray[np.uint8] | None) -> None:
        self.memory, self.needed = memory, 0
        self.steps: list[Call] = []
        self._free: list[tuple[int, int]] = []

    def new(self, shape: tuple[int, ...], dtype: Any) -> TracedArray:
        kind = np.dtype(dtype)
        nbytes = prod(shape) * kind.itemsize
        size = -(-max(nbytes, 1) // _ALIGNMENT) * _ALIGNMENT
        start = self._take(size)
        if self.memory is None:
            array: _Array = np.broadcast_to(np.zeros((), kind), shape)
        else:
            array = self.memory[start : start + nbytes].view(kind).reshape(shape)
        return TracedArray(self, array, _Allocation(self, start, size))

    def _take(self, size: int) -> int:
        """The start of a free stretch: the smallest that is large enough, else at the end."""
        fitting = [stretch for stretch in self._free if stretch[1] >= size]
        if not fitting:
            self.needed += size
            return self.needed - size
        start, found = min(fitting, key=lambda stretch: stretch[1])
        self._free.remove((start, found))
        if found > size:
            self._free.append((start + size, found - size))
        return start

    def release(self, start: int, size: int) -> None:
        """Give a stretch back, joined with its neighbours."""
        for other in list(self._free):
            if other[0] + other[1] == start or start + size == other[0]:
                self._free.remove(other)
                start, size = min(start, other[0]), size + other[1]
        self._free.append((start, size))

    def call(self, function: Callable[..., object], *operands: Any, **named: Any) -> None:
        self.steps.append(partial(function, *map(_plain, operands), **{k: _plain(v) for k, v in named.items()}))


class _Allocation:
    """Memory that is given back when nobody holds it any more."""

    def __init__(self, recorder: Tracer, start: int, size: int) -> None:
        self.recorder, self.start, self.size = recorder, start, size

    def __del__(self) -> None:
        self.recorder.release(self.start, self.size)


class TracedArray(NDArrayOperatorsMixin):
    """An array, and the memory that it or what it is a view of lies in."""

    def __init__(self, recorder: Tracer, array: _Array, block: _Allocation | None = None) -> None:
        self.recorder, self.array, self.block = recorder, array, block

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    @property
    def T(self) -> TracedArray:
        return self._view(self.array.T)

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, key: Any) -> TracedArray:
        return self._view(self.array[key])

    def __setitem__(self, key: Any, value: Any) -> None:
        self.recorder.call(np.copyto, self.array[key], value)

    def sum(self, axis: int) -> TracedArray:
        made = self.recorder.new(tuple(np.delete(self.shape, axis).tolist()), self.dtype)
        self.recorder.call(np.add.reduce, self, axis, None, made)
        return made

    def _view(self, array: _Array) -> TracedArray:
        return TracedArray(self.recorder, array, self.block)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **named: Any) -> Any:
        if method != "__call__" or named:
            return NotImplemented
        operands = [_plain(value) for value in inputs]
        if out is None:
            made = self.recorder.new(_shape(ufunc, operands), _dtype(ufunc, operands))
        else:
            (made,) = out
        self.recorder.call(ufunc, *operands, out=made)
        return made

    def __array_function__(self, function: Any, types: Any, given: Sequence[Any], named: Any) -> Any:
        known: Any = _FUNCTIONS.get(function)
        return NotImplemented if known is None else known(self.recorder, *given, **named)


def _plain(value: Any) -> Any:
    return value.array if isinstance(value, TracedArray) else value


def _shape(ufunc: Any, operands: Sequence[Any]) -> tuple[int, ...]:
    if ufunc is np.matmul:
        return (*operands[0].shape[:-1], operands[1].shape[-1])
    return tuple(np.broadcast_shapes(*(np.shape(value) for value in operands)))


_TESTS = (np.greater, np.greater_equal, np.less, np.less_equal, np.equal)


def _dtype(ufunc: Any, operands: Sequence[Any]) -> Any:
    """Numbers take the type of the arrays that they meet; a fraction and truth values make FLOAT."""
    if ufunc in _TESTS:
        return bool
    dtype = np.result_type(*(value for value in operands if isinstance(value, np.ndarray)))
    return np.float32 if dtype.kind == "b" and any(isinstance(value, float) for value in operands) else dtype


# Functions of numpy that are no ufuncs


def _where(recorder: Tracer, test: TracedArray, yes: Any, no: Any) -> TracedArray:
    kinds = [value.dtype for value in (yes, no) if isinstance(value, TracedArray)]
    made = recorder.new(
        _shape(np.add, [_plain(test), _plain(yes), _plain(no)]), np.result_type(*kinds or [np.dtype(np.float32)])
    )
    recorder.call(np.copyto, made, no)
    recorder.call(np.copyto, made, yes, where=test)
    return made


def _concatenate(recorder: Tracer, parts: Sequence[TracedArray], axis: int = 0) -> TracedArray:
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    made = recorder.new(tuple(shape), parts[0].dtype)
    recorder.call(np.concatenate, tuple(part.array for part in parts), axis, made)
    return made


def _split(recorder: Tracer, whole: TracedArray, count: int, axis: int = 0) -> list[TracedArray]:
    return [whole._view(part) for part in np.split(whole.array, count, axis)]


def _clip(recorder: Tracer, x: TracedArray, low: Any, high: Any) -> TracedArray:
    made = recorder.new(x.shape, x.dtype)
    recorder.call(np.clip, x, low, high, made)
    return made


def _empty_like(recorder: Tracer, other: TracedArray) -> TracedArray:
    return recorder.new(other.shape, other.dtype)


def _zeros_like(recorder: Tracer, other: TracedArray) -> TracedArray:
    made = recorder.new(other.shape, other.dtype)
    recorder.call(made.array.fill, 0)
    return made


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.where: _where,
    np.concatenate: _concatenate,
    np.split: _split,
    np.clip: _clip,
    np.empty_like: _empty_like,
    np.zeros_like: _zeros_like,
}
