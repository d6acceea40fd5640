"""Numpy tracer: records the numpy calls of a function, to repeat them without allocating arrays.

The function is called once, when its op is bound, with TracedArray objects in place of arrays. The tracer records
each numpy call and gives its result a place in scratch memory, which is allocated beforehand and reused as soon as
the function no longer refers to the result. The function must not branch on the values of its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from math import prod
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from ipu_emu.graph import Tensor
from ipu_emu.graph.dtype import FLOAT16
from ipu_emu.ops.codegen.gemm import gemm, gemm_workspace
from ipu_emu.ops.core.array_functions import ArrayFunction
from ipu_emu.ops.core.axis_sums import axis_sum
from ipu_emu.ops.core.node import Node
from ipu_emu.ops.core.op_definition import BoundOp, Call, Kernel, Workspace, call_chain

_Array = NDArray[Any]
_ALIGNMENT = 64


#: ``function(node, *inputs)`` returns a tuple of arrays.
_Function = Callable[..., tuple[Any, ...]]


def traced_kernel(function: _Function) -> Kernel:
    """A kernel that repeats the numpy calls of ``function`` in the scratch arrays of ``traced_workspace``."""

    def kernel(bound: BoundOp) -> Call:
        tracer = Tracer(bound.scratch[0].view(np.uint8))
        results = function(bound.node, *(None if a is None else TracedArray(tracer, a) for a in bound.inputs))
        for output, value in zip(bound.outputs, results, strict=True):
            tracer.call(np.copyto, output, value)
        return call_chain(*tracer.steps)

    return kernel


def traced_workspace(function: _Function) -> Workspace:
    """The size of the scratch for those results of ``function`` that are live at the same time."""

    def workspace(node: Node) -> list[int]:
        operands = tuple(None if t is None else (t.dtype.name, t.shape) for t in node.inputs)
        return [_workspace_size(_TraceKey(function, repr(sorted(node.op.attributes.items())), operands, node))]

    return workspace


@dataclass(frozen=True)
class _TraceKey:
    """Everything that a traced function may depend on, as a hashable key."""

    function: _Function
    attributes: str
    operands: tuple[tuple[str, tuple[int, ...]] | None, ...]
    node: Node = field(compare=False)


@lru_cache(maxsize=1024)
def _workspace_size(key: _TraceKey) -> int:
    """The size of the scratch, in float32 elements.

    A pure function of its key, so one cache serves all sessions of the process: tracing a long sequence is slow, and
    the planner needs the size several times.
    """
    tracer = Tracer(None)
    key.function(key.node, *(None if t is None else TracedArray(tracer, _without_memory(t)) for t in key.node.inputs))
    return -(-tracer.needed // 4)


def _without_memory(tensor: Tensor) -> _Array:
    """An array of the type and shape that kernels see, without memory of its own."""
    kind = np.dtype(np.float32) if tensor.dtype is FLOAT16 else tensor.dtype.numpy
    return np.broadcast_to(np.zeros((), kind), tensor.shape)


class Tracer:
    """Records ``steps``; results are stored in ``memory`` (bytes), which is None when only ``needed`` is computed."""

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
        """The start of the smallest free range that is large enough, or of a new range at the end."""
        fitting = [stretch for stretch in self._free if stretch[1] >= size]
        if not fitting:
            self.needed += size
            return self.needed - size
        start, length = min(fitting, key=lambda stretch: stretch[1])
        self._free.remove((start, length))
        if length > size:
            self._free.append((start + size, length - size))
        return start

    def release(self, start: int, size: int) -> None:
        """Free a range, merged with free neighbours."""
        for other in list(self._free):
            if other[0] + other[1] == start or start + size == other[0]:
                self._free.remove(other)
                start, size = min(start, other[0]), size + other[1]
        self._free.append((start, size))

    def call(self, function: Callable[..., object], *operands: Any, **named: Any) -> None:
        if self.memory is not None:
            bind = function.bound if isinstance(function, ArrayFunction) else partial(partial, function)
            self.steps.append(bind(*map(_plain, operands), **{k: _plain(v) for k, v in named.items()}))


class _Allocation:
    """Scratch memory that is released when no array refers to it."""

    def __init__(self, tracer: Tracer, start: int, size: int) -> None:
        self.tracer, self.start, self.size = tracer, start, size

    def __del__(self) -> None:
        self.tracer.release(self.start, self.size)


class TracedArray(NDArrayOperatorsMixin):
    """An array, and the allocation that it, or the array it is a view of, is stored in."""

    def __init__(self, tracer: Tracer, array: _Array, block: _Allocation | None = None) -> None:
        self.tracer, self.array, self.block = tracer, array, block

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
        self.tracer.call(np.copyto, self.array[key], value)

    def sum(self, axis: int) -> TracedArray:
        total = self.tracer.new(tuple(np.delete(self.shape, axis).tolist()), self.dtype)
        if self.tracer.memory is not None:
            self.tracer.steps.append(axis_sum(self.array, total.array, (axis,)))
        return total

    def _view(self, array: _Array) -> TracedArray:
        return TracedArray(self.tracer, array, self.block)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **named: Any) -> Any:
        if method != "__call__" or named:
            return NotImplemented
        operands = [_plain(value) for value in inputs]
        if ufunc is np.matmul:
            return _product(self.tracer, *operands)
        if out is None:
            result = self.tracer.new(_shape(ufunc, operands), _dtype(ufunc, operands))
        else:
            (result,) = out
        self.tracer.call(ufunc, *operands, out=result)
        return result

    def __array_function__(self, function: Any, types: Any, arguments: Sequence[Any], named: Any) -> Any:
        known: Any = _FUNCTIONS.get(function)
        return NotImplemented if known is None else known(self.tracer, *arguments, **named)


def _plain(value: Any) -> Any:
    return value.array if isinstance(value, TracedArray) else value


def _shape(ufunc: Any, operands: Sequence[Any]) -> tuple[int, ...]:
    return tuple(np.broadcast_shapes(*(np.shape(value) for value in operands)))


_TESTS = (np.greater, np.greater_equal, np.less, np.less_equal, np.equal)


def _dtype(ufunc: Any, operands: Sequence[Any]) -> Any:
    """Python numbers take the type of the array operands; a fraction with BOOL operands gives FLOAT."""
    if ufunc in _TESTS:
        return bool
    dtype = np.result_type(*(value for value in operands if isinstance(value, np.ndarray)))
    return np.float32 if dtype.kind == "b" and any(isinstance(value, float) for value in operands) else dtype


# Products, and numpy functions other than ufuncs


def _product(tracer: Tracer, a: _Array, b: _Array) -> TracedArray:
    """The product of two matrices."""
    (m, k), n = a.shape, b.shape[1]
    product = tracer.new((m, n), a.dtype)
    scratch = [tracer.new((size,), np.float32) for size in gemm_workspace(m, k, n, 1, half=False)]
    if tracer.memory is not None:
        tracer.steps += gemm(a, b, product.array, [memory.array for memory in scratch])
    return product


def _where(tracer: Tracer, test: TracedArray, yes: Any, no: Any) -> TracedArray:
    kinds = [value.dtype for value in (yes, no) if isinstance(value, TracedArray)]
    result = tracer.new(
        _shape(np.add, [_plain(test), _plain(yes), _plain(no)]), np.result_type(*kinds or [np.dtype(np.float32)])
    )
    tracer.call(np.copyto, result, no)
    tracer.call(np.copyto, result, yes, where=test)
    return result


def _concatenate(tracer: Tracer, parts: Sequence[TracedArray], axis: int = 0) -> TracedArray:
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    joined = tracer.new(tuple(shape), parts[0].dtype)
    tracer.call(np.concatenate, tuple(part.array for part in parts), axis, joined)
    return joined


def _split(tracer: Tracer, array: TracedArray, count: int, axis: int = 0) -> list[TracedArray]:
    return [array._view(part) for part in np.split(array.array, count, axis)]


def _clip(tracer: Tracer, x: TracedArray, low: Any, high: Any) -> TracedArray:
    clipped = tracer.new(x.shape, x.dtype)
    tracer.call(np.clip, x, low, high, clipped)
    return clipped


def _zeros_like(tracer: Tracer, other: TracedArray) -> TracedArray:
    zeros = tracer.new(other.shape, other.dtype)
    tracer.call(zeros.array.fill, 0)
    return zeros


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.where: _where,
    np.concatenate: _concatenate,
    np.split: _split,
    np.clip: _clip,
    np.empty_like: lambda tracer, other: tracer.new(other.shape, other.dtype),
    np.zeros_like: _zeros_like,
}
