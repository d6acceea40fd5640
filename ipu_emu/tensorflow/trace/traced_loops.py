"""Traced loops: loops of Python code over tensors, which AutoGraph converts while a function is traced.

The outermost loop of a tf.function is that of the program; a loop in it is unrolled, as is one that a tape
differentiates. A loop with an unknown number of iterations, or with ``break``, evaluates its condition after each
iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tensorflow.python.autograph.operators.variables import Undefined
from tensorflow.python.eager import record
from tensorflow.python.framework import dtypes, ops
from tensorflow.python.framework import tensor as tensor_lib
from tensorflow.python.ops import array_ops
from tensorflow.python.util import nest

from ipu_emu.tensorflow.trace.folding import fold
from ipu_emu.tensorflow.trace.function_trace import Carried, FunctionTrace, Section, current_trace, is_resource

#: The most iterations of a loop that are unrolled.
MOST_UNROLLED = 4096
_NUMBERS = (bool, int, float, np.ndarray, np.generic)


def range_loop(
    before: Any, iterated: Any, extra_test: Any, body: Any, get_state: Any, set_state: Any, names: Any, options: Any
) -> None:
    """``for i in tf.range(...)`` of AutoGraph."""
    trace = _trace()
    numbers = None if trace is None or extra_test is not None else _numbers(trace, iterated)
    if trace is None or numbers is None:
        before(iterated, extra_test, body, get_state, set_state, names, options)
        return
    state = _State(get_state, set_state, names)
    if _is_outermost(trace) and state.fits():
        if len(numbers):
            _section(trace, numbers, body, state)
        return
    if len(numbers) > MOST_UNROLLED:
        before(iterated, extra_test, body, get_state, set_state, names, options)
        return
    for number in numbers:
        body(ops.convert_to_tensor(number))


def while_loop(before: Any, test: Any, body: Any, get_state: Any, set_state: Any, names: Any, options: Any) -> None:
    """``while condition:`` of AutoGraph, and loops over ranges that are not known or may break."""
    trace, state = _trace(), _State(get_state, set_state, names)
    if trace is None or not _is_outermost(trace) or not state.fits():
        before(test, body, get_state, set_state, names, options)
        return
    initial = state.initial()
    first = ops.convert_to_tensor(test())
    section = Section("while", trace.position())
    with trace.in_section(section):
        starts = state.start(trace, initial)
        body()
        section.carry(initial, starts, state.ends(starts))
        section.condition = ops.convert_to_tensor(test())
        section.count = (first, None)


def _trace() -> FunctionTrace | None:
    """The trace to whose own graph ops are added."""
    trace = current_trace()
    return trace if trace is not None and ops.get_default_graph() is trace.graph else None


def _is_outermost(trace: FunctionTrace) -> bool:
    """Whether a loop may be the outermost loop of the program."""
    return trace.loops and trace.section is None and not record.could_possibly_record()


def _numbers(trace: FunctionTrace, iterated: Any) -> NDArray[Any] | None:
    """The numbers of a range; None if the device computes them."""
    inputs = [_known_value(trace, tensor) for tensor in iterated.op.inputs]
    if any(value is None for value in inputs):
        return None
    bounds: list[Any] = [value[()] for value in inputs if value is not None]
    return np.arange(*bounds, dtype=iterated.dtype.as_numpy_dtype)


def _section(trace: FunctionTrace, numbers: NDArray[Any], body: Callable[[Any], None], state: _State) -> None:
    """Trace the outermost loop of the program, whose body is traced once."""
    initial = state.initial()
    first = ops.convert_to_tensor(numbers[0])
    section = Section("loop", trace.position(), batches=len(numbers))
    with trace.in_section(section):
        starts = state.start(trace, initial)
        number = trace.placeholder(first.dtype, first.shape, "carried", None, "number")
        body(number)
        section.carry(initial, starts, state.ends(starts))
        if number.consumers() or any(number is value for value in nest.flatten(state.values())):
            step = numbers[1] - numbers[0] if len(numbers) > 1 else numbers.dtype.type(1)
            section.carried.append(Carried(first, number, number + step))
        section.divide()


@dataclass
class _State:
    """The variables of Python code that a loop changes, by name, and the tensors among them.

    A variable without a value before the loop is not carried from one iteration to the next.
    """

    get: Callable[[], tuple[Any, ...]]
    put: Callable[[Sequence[Any]], None]
    names: Sequence[str]

    def values(self) -> list[Any]:
        return list(self.get())

    def fits(self) -> bool:
        """Whether all values can be carried: lists of tensors cannot."""
        return not any(
            isinstance(value, tensor_lib.Tensor) and value.dtype == dtypes.variant
            for value in nest.flatten(self.values(), expand_composites=True)
        ) and not any(type(value).__name__ == "TensorArray" for value in nest.flatten(self.values()))

    def initial(self) -> list[Any]:
        """Convert all numbers to tensors; return the tensors."""
        values = [
            nest.map_structure(lambda leaf: array_ops.identity(leaf) if _is_carried(leaf) else leaf, value)
            for value in self.values()
        ]
        self.put(values)
        return self._carried()

    def start(self, trace: FunctionTrace, initial: Sequence[Any]) -> list[Any]:
        """Set the variables to the values at the start of an iteration, and return these."""
        starts = trace.starts(initial)
        remaining = iter(starts)
        self.put([
            nest.map_structure(lambda leaf: next(remaining) if _is_carried(leaf) else leaf, value)
            for value in self.values()
        ])  # fmt: skip
        self._given = [(value, sum(map(_is_carried, nest.flatten(value)))) for value in self.values()]
        return starts

    def ends(self, starts: Sequence[Any]) -> list[Any]:
        """The values at the end of an iteration, in the types of those at its start."""
        ends: list[Any] = []
        values, left = self.values(), list(starts)
        for number, (value, (before, count)) in enumerate(zip(values, self._given, strict=True)):
            if not count:
                continue
            try:
                nest.assert_same_structure(before, value)
                leaves = [
                    _like(leaf, left.pop(0)) if _is_carried(old) else leaf
                    for leaf, old in zip(nest.flatten(value), nest.flatten(before), strict=True)
                ]
            except (TypeError, ValueError) as error:
                raise TypeError(
                    f"'{self.names[number]}' is another type or shape after an iteration of the loop: {error}; give "
                    "it the same type and shape before the loop"
                ) from None
            ends += [leaf for leaf, old in zip(leaves, nest.flatten(before), strict=True) if _is_carried(old)]
            values[number] = nest.pack_sequence_as(value, leaves)
        self.put(values)
        return ends

    def _carried(self) -> list[Any]:
        return [leaf for value in self.values() for leaf in nest.flatten(value) if _is_carried(leaf)]


def _is_carried(leaf: Any) -> bool:
    """Whether the value of a Python variable can be carried by a loop: a number or a tensor."""
    if isinstance(leaf, Undefined):
        return False
    if isinstance(leaf, tensor_lib.Tensor):
        return leaf.dtype not in (dtypes.resource, dtypes.variant, dtypes.string)
    return isinstance(leaf, _NUMBERS)


def _like(value: Any, start: Any) -> Any:
    """``value`` as a tensor of the type and shape of ``start``."""
    tensor = ops.convert_to_tensor(value, start.dtype)
    if tensor.shape.as_list() != start.shape.as_list():
        raise ValueError(f"the shape {start.shape} becomes {tensor.shape}")
    return tensor


def _known_value(trace: FunctionTrace, tensor: Any) -> NDArray[Any] | None:
    """The value of ``tensor`` while the program is traced, None where the device computes it.

    The names of the arguments that the value depends on are added to ``trace.settled``.
    """
    captured = {inner.name: outer for outer, inner in trace.captures()}
    known: dict[str, list[Any] | None] = {}

    def outputs(op: Any) -> list[Any] | None:
        if op.name not in known:
            known[op.name] = _outputs(op)
        return known[op.name]

    def _outputs(op: Any) -> list[Any] | None:
        if op.type == "Placeholder":
            return _given(trace, captured, op.outputs[0])
        if op.op_def.is_stateful or op.graph is not trace.graph or op.name in trace.markers:
            return None
        inputs = []
        for source in op.inputs:
            values = outputs(source.op)
            if values is None:
                return None
            inputs.append(values[source.value_index])
        try:
            return fold(op, inputs)
        except Exception:  # an op without a kernel for eager execution
            return None

    result = outputs(tensor.op)
    return None if result is None else np.asarray(result[tensor.value_index])


def _given(trace: FunctionTrace, captured: dict[str, Any], tensor: Any) -> list[Any] | None:
    """The value of an argument of the current call, or of a tensor of the host."""
    if tensor.name in trace.argument_values:
        trace.settled.add(tensor.name)
        return [trace.argument_values[tensor.name]]
    outer = captured.get(tensor.name)
    if outer is None or is_resource(outer) or not hasattr(outer, "numpy"):
        return None
    return [outer.numpy()]
