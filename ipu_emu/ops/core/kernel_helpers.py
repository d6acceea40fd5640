"""Kernel helpers: flat views, operands copied or converted for a kernel, and numpy functions as kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import InternalError
from ipu_emu.ops.core.array_functions import ArrayFunction
from ipu_emu.ops.core.formulas import Formula
from ipu_emu.ops.core.node import Node
from ipu_emu.ops.core.op_definition import BoundOp, Call, GradRule, Kernel, OpDef, call_chain, per_element
from ipu_emu.ops.core.shape_rules import aligned_shape, same


def epsilon_of(node: Node) -> float:
    """The epsilon of a normalisation, in float32."""
    return float(np.float32(node.attribute("epsilon", 1e-5)))


def ufunc(function: Callable[..., Any]) -> Kernel:
    """A kernel that calls ``function(*inputs, out=output)``."""

    def kernel(bound: BoundOp) -> Call:
        return partial(function, *bound.inputs, out=bound.outputs[0])

    return kernel


def copy(bound: BoundOp) -> Call:
    """The kernel that copies input 0, converted to the type of the output."""
    return partial(np.copyto, bound.outputs[0], bound.input(0), casting="unsafe")


def aligned(function: Callable[..., Any]) -> Kernel:
    """A kernel of ``function(a, b, out)`` that aligns b with the axes of a that old opsets name."""

    def kernel(bound: BoundOp) -> Call:
        a, b = bound.input(0), bound.input(1)
        return partial(function, a, b.reshape(aligned_shape(bound.node)), bound.outputs[0])

    return kernel


def allocating_kernel(function: Callable[..., Any]) -> Kernel:
    """A kernel for rare ops: ``function(node, *inputs)`` allocates its results, which are copied to the outputs."""

    def kernel(bound: BoundOp) -> Call:
        def run() -> None:
            new = function(bound.node, *bound.inputs)
            for output, value in zip(bound.outputs, new if isinstance(new, tuple) else (new,), strict=True):
                np.copyto(output, value, casting="unsafe")

        return run

    return kernel


def formula_kernel(formula: Formula) -> Kernel:
    """A kernel that evaluates ``formula`` with the bits of a fused op."""

    def kernel(bound: BoundOp) -> Call:
        parameters = formula.parameters_of(bound.node.op.attributes)
        return ArrayFunction(formula, parameters).bound(*bound.inputs, out=bound.outputs[0])

    return kernel


def formula_op(
    type: str, inputs: int, formula: Formula, operations: int, grad: GradRule | None, domain: str = ""
) -> OpDef:
    """The entry of an element-wise op that ``formula`` defines, of so many ``operations`` for each element."""
    kernel, cost = formula_kernel(formula), per_element(operations)
    return OpDef(type, (inputs, inputs), same, kernel, cost, grad, elementwise=True, domain=domain, formula=formula)


def with_contiguous_operands(kernel: Kernel) -> Kernel:
    """Wrap ``kernel``, which needs C-contiguous operands, so that it takes operands in any storage order.

    Operands in another order get a buffer of their own when the kernel is bound.
    """
    return _on_buffers(
        kernel, lambda array: array if array.flags.c_contiguous else np.zeros(array.shape, array.dtype)
    )


def in_float32(kernel: Kernel) -> Kernel:
    """Wrap ``kernel``, which takes FLOAT and FLOAT16 only, so that it computes DOUBLE operands in FLOAT."""
    return _on_buffers(kernel, lambda a: np.zeros_like(a, np.float32) if a.dtype == np.float64 else a)


def _on_buffers(kernel: Kernel, buffer: Callable[[NDArray[Any]], NDArray[Any]]) -> Kernel:
    """Wrap ``kernel`` so that it runs on the ``buffer`` of each operand, which may be the operand itself."""

    def wrapped(bound: BoundOp) -> Call:
        inputs = [None if a is None else buffer(a) for a in bound.inputs]
        outputs = [buffer(a) for a in bound.outputs]
        pairs = zip(inputs, bound.inputs, strict=True)
        before = [partial(np.copyto, n, o) for n, o in pairs if n is not None and o is not None and n is not o]
        after = [partial(np.copyto, o, n) for n, o in zip(outputs, bound.outputs, strict=True) if n is not o]
        # Inputs that have buffers are written in every step.
        held = frozenset(index for index in bound.held_inputs if inputs[index] is bound.inputs[index])
        step = kernel(BoundOp(bound.node, tuple(inputs), tuple(outputs), bound.scratch, bound.held, held))
        return call_chain(*before, step, *after) if before or after else step

    return wrapped


def copies_in_place(bound: BoundOp, updated: slice = slice(None)) -> list[Call]:
    """Calls that copy the ``updated`` inputs to their outputs, which the op then changes in place."""
    pairs = zip(bound.outputs, bound.inputs[updated], strict=False)
    return [partial(np.copyto, out, x) for out, x in pairs if x is not None and not np.shares_memory(out, x)]


def view(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """``array`` in another shape without a copy; raise InternalError where its storage does not allow that."""
    result = array.view()
    try:
        result.shape = shape
    except AttributeError:
        raise InternalError(f"a {array.shape} array of strides {array.strides} has no view {shape}") from None
    return result


def storage(array: NDArray[Any]) -> NDArray[Any]:
    """The elements of ``array`` in the order of memory, in one dimension."""
    order = sorted(range(array.ndim), key=lambda axis: (-array.strides[axis], axis))
    return view(array.transpose(order), (array.size,))


def flat(*arrays: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Arrays of one shape and one storage order, each in one dimension."""
    if len({_strides(array) for array in arrays}) > 1:
        raise InternalError("operands of one element-wise op are stored in different orders")
    return tuple(storage(array) for array in arrays)


def _strides(array: NDArray[Any]) -> tuple[int, ...]:
    return tuple(
        stride // array.itemsize for stride, size in zip(array.strides, array.shape, strict=True) if size > 1
    )


def running_mean(bound: BoundOp, keep: Any, take: Any) -> Call:
    """output = ``keep`` input 0 + ``take`` input 1, which may be in place."""
    old, new, out, share = bound.input(0), bound.input(1), bound.outputs[0], bound.scratch[0]
    share = share.reshape(new.shape)
    return call_chain(
        partial(np.multiply, new, take, share),
        partial(np.multiply, old, keep, out),
        partial(np.add, out, share, out),
    )


def channel_rows(x: NDArray[Any]) -> tuple[int, int]:
    """Rows and columns of ``x`` [N, C, ...] stored with the channels outermost: a row for each channel."""
    return x.shape[1], x.size // max(x.shape[1], 1)


def scalar(value: float) -> np.float32:
    """A constant that keeps float32 arithmetic in float32."""
    return np.float32(value)
