"""Loops: programs that run a body several times on the device without returning to the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tensorflow.python.framework import ops
from tensorflow.python.framework import tensor as tensor_lib
from tensorflow.python.util import nest

from ipu_emu.session.options.without_effect import without_effect
from ipu_emu.tensorflow.api.ipu_infeed_queue import IPUInfeedQueue
from ipu_emu.tensorflow.trace.function_trace import FunctionTrace, Section, current_trace

__all__ = ["repeat", "while_loop"]

_MOST_INLINED = 4096


@without_effect("use_while_v1")
def repeat(
    n: Any,
    body: Callable[..., Any],
    inputs: Any = None,
    infeed_queue: IPUInfeedQueue | None = None,
    use_while_v1: bool = True,
) -> Any:
    """Run ``body`` ``n`` times; its outputs are the inputs of the next iteration. Return the last outputs."""
    trace = _trace("repeat")
    values = _inputs(trace, inputs)
    if trace.section is not None:
        return _inlined(int(n), body, values, infeed_queue)
    section = Section("loop", trace.position(), batches=int(n))
    with trace.in_section(section):
        tensors, operations = _iteration(trace, section, body, values, infeed_queue)
        section.divide()
    return tensors if tensors else trace.nothing(operations, "repeat")


@without_effect("use_while_v1")
def while_loop(
    condition: Callable[..., Any],
    body: Callable[..., Any],
    inputs: Any = None,
    infeed_queue: IPUInfeedQueue | None = None,
    maximum_iterations: int | None = None,
    use_while_v1: bool = True,
) -> Any:
    """Run ``body`` while ``condition`` of its inputs holds; return the last outputs."""
    trace = _trace("while_loop")
    values = _inputs(trace, inputs)
    if trace.section is not None:
        raise NotImplementedError("A while_loop in another loop is not supported; use repeat")
    first = ops.convert_to_tensor(condition(*values))
    section = Section("while", trace.position())
    with trace.in_section(section):
        tensors, operations = _iteration(trace, section, body, values, infeed_queue)
        section.condition = ops.convert_to_tensor(condition(*tensors))
        section.count = (first, maximum_iterations)
    return tensors if tensors else trace.nothing(operations, "while_loop")


def _trace(name: str) -> FunctionTrace:
    trace = current_trace()
    if trace is None:
        raise ValueError(f"loops.{name} must be called in a function that ipu_compiler.compile compiles")
    return trace


def _inputs(trace: FunctionTrace, inputs: Any) -> list[Any]:
    operands = [] if inputs is None else list(inputs) if isinstance(inputs, list | tuple) else [inputs]
    return [trace.graph.capture(ops.convert_to_tensor(operand)) for operand in operands]


def _iteration(
    trace: FunctionTrace, section: Section, body: Callable[..., Any], values: list[Any], infeed: IPUInfeedQueue | None
) -> tuple[list[Any], list[Any]]:
    """Trace an iteration of a section that carries ``values``; return its tensors and ops."""
    starts = trace.starts(values)
    tensors, operations = _called(body, starts, infeed)
    _check_types(values, tensors)
    section.roots = operations
    section.carry(values, starts, tensors)
    return tensors, operations


def _called(
    body: Callable[..., Any], starts: Sequence[Any], infeed_queue: IPUInfeedQueue | None
) -> tuple[list[Any], list[Any]]:
    """The tensors and the ops that an iteration returns."""
    arguments, named = list(starts), dict[str, Any]()
    if infeed_queue is not None:
        if not isinstance(infeed_queue, IPUInfeedQueue):
            raise TypeError("infeed_queue is not an instance of ipu_infeed_queue.IPUInfeedQueue")
        element = infeed_queue._dequeue()
        if isinstance(element, dict):
            named = element
        else:
            arguments += element if isinstance(element, tuple | list) else [element]
    return split_outputs(body(*arguments, **named))


def split_outputs(result: Any) -> tuple[list[Any], list[Any]]:
    """The tensors, then the ops, that a body returned; raise ValueError for another order."""
    flat = [] if result is None else nest.flatten(result)
    flat = [item if isinstance(item, ops.Operation) else _tensor(item) for item in flat if item is not None]
    tensors = [item for item in flat if isinstance(item, tensor_lib.Tensor)]
    operations = [item for item in flat if isinstance(item, ops.Operation)]
    if [id(item) for item in flat] != [id(item) for item in (*tensors, *operations)]:
        raise ValueError("IPU loop body must return zero or more Tensor values followed by zero or more Operations.")
    return tensors, operations


def _tensor(value: Any) -> Any:
    try:
        return ops.convert_to_tensor(value)
    except (TypeError, ValueError):
        raise TypeError(
            "IPU loop body must return zero or more Tensor values followed by zero or more Operations."
        ) from None


def _check_types(inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
    expected, actual = [tensor.dtype for tensor in inputs], [tensor.dtype for tensor in outputs]
    if expected != actual:
        raise TypeError(
            f"The body of the loop returns tensors of the types {[t.name for t in actual]}, and its inputs are "
            f"{[t.name for t in expected]}; return one tensor of the same type for each input"
        )


def _inlined(n: int, body: Callable[..., Any], values: list[Any], infeed_queue: IPUInfeedQueue | None) -> Any:
    """Unroll a loop that is inside another loop."""
    if n > _MOST_INLINED:
        raise NotImplementedError(f"An inner loop has {n} iterations; use at most {_MOST_INLINED}")
    trace = _trace("repeat")
    tensors, operations = values, list[Any]()
    for _ in range(n):
        with ops.control_dependencies(operations):
            tensors, operations = _called(body, tensors, infeed_queue)
    return tensors if tensors else trace.nothing(operations, "repeat")
