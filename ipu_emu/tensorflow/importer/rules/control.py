"""Rules of functions, loops and lists of tensors.

A called function is imported in place. A loop is unrolled if its condition is known for each iteration; else it is
one op with a body.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ipu_emu.graph import Graph, Tensor
from ipu_emu.graph.dtype import BOOL, INT64
from ipu_emu.ops import Value, concatenated
from ipu_emu.ops.random.counter_rng import STREAM_ID
from ipu_emu.tensorflow.importer.node import Rule, SourceNode
from ipu_emu.tensorflow.importer.rules.arithmetic import cast_to
from ipu_emu.tensorflow.importer.values import Held, Imported, Known, TensorList, Variable

#: The most iterations of a loop that are unrolled.
_MOST_ITERATIONS = 4096


def _call(node: SourceNode) -> list[Imported]:
    return node.call(node.function("f"), node.inputs)


def _while(node: SourceNode) -> list[Imported]:
    condition, body = (node.function(name) for name in ("cond", "body"))
    values = list(node.inputs)
    for _ in range(_MOST_ITERATIONS + 1):
        (going,) = node.call(condition, values)
        if not isinstance(going, Known):
            return _computed_loop(node, condition, body, values)
        if not going.array:
            return values
        values = list(node.call(body, values))
    raise node.refuse(f"the loop has more than {_MOST_ITERATIONS} iterations, which is too many to unroll")


def _computed_loop(node: SourceNode, condition: Any, body: Any, values: Sequence[Imported]) -> list[Imported]:
    """The values after a loop whose number of iterations is computed on the device: one op with a body.

    Values that the body does not change are not part of its state.
    """
    carried = [number for number in range(len(values)) if not _passes_on(body, number)]
    for number in carried:
        if not isinstance(values[number], Known | Held):
            raise node.refuse(
                "the number of its iterations is computed on the device, and it carries a list of tensors; give it a "
                "number that is known when the program is compiled"
            )
    for value in values:
        if isinstance(value, Variable):
            node.writer.read(value)
    starts = [node.of(values[number]).tensor for number in carried]
    first = node.of(node.call(condition, values)[0]).shaped(()).tensor
    loop_body = _loop_body(node, condition, body, values, starts, carried)
    ids = ["", first.id, *(start.id for start in starts)]
    ends = node.writer.append("Loop", ids, {"body": loop_body}, len(carried), version=11)
    results = list(values)
    for number, end in zip(carried, ends, strict=True):
        results[number] = Held(end)
    return results


def _loop_body(
    node: SourceNode,
    condition: Any,
    body: Any,
    values: Sequence[Imported],
    starts: Sequence[Tensor],
    carried: Sequence[int],
) -> Graph:
    """A graph of (number, condition, states) -> (condition, states)."""
    writer = node.writer
    before = _ids(writer.variable_values())
    heads = [Tensor(f"{writer.label}/number", INT64, ()), Tensor(f"{writer.label}/going", BOOL, ())]
    states = [Tensor(f"{writer.label}/state/{k}", start.dtype, start.shape) for k, start in enumerate(starts)]
    arguments = list(values)
    with writer.body() as inner:
        for tensor in (*heads, *states):
            inner.add(tensor)
            inner.inputs.append(tensor.id)
        for number, tensor in zip(carried, states, strict=True):
            arguments[number] = Held(writer.value(tensor))
        after = node.call(body, arguments)
        after = [after[number] if number in carried else values[number] for number in range(len(values))]
        going = node.of(node.call(condition, after)[0]).shaped(())
        ends = [node.of(after[number]) for number in carried]
        inner.outputs = [writer.copied(end).tensor.id for end in ends]
        inner.outputs.insert(0, going.op("And", going).tensor.id)
    computed = "a loop whose number of iterations is computed on the device"
    if before != _ids(writer.variable_values()):
        raise node.refuse(f"{computed} cannot change variables")
    if any(STREAM_ID in op.attributes for op in inner.ops):
        raise node.refuse(f"{computed} cannot draw random numbers")
    return inner


def _ids(variables: Mapping[str, Value]) -> dict[str, str]:
    return {name: value.tensor.id for name, value in variables.items()}


def _passes_on(body: Any, number: int) -> bool:
    """Whether the body of a loop returns a value unchanged."""
    tensor = body.outputs[number]
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor is body.inputs[number]


# Lists of tensors


def _list(node: SourceNode) -> TensorList:
    value = node.inputs[0]
    if not isinstance(value, TensorList):
        raise node.refuse("it takes a list of tensors")
    return value


def _element_shape(node: SourceNode, index: int) -> tuple[int, ...] | None:
    value = node.inputs[index]
    if not isinstance(value, Known):
        return None
    shape = tuple(int(size) for size in value.array.reshape(-1)) if value.array.ndim else None
    return None if shape is None or -1 in shape else shape


def _reserve(node: SourceNode) -> TensorList:
    """(shape of an element, number)"""
    return TensorList((None,) * node.integer(1), _element_shape(node, 0), node.numpy_of("element_dtype"))


def _from_tensor(node: SourceNode) -> TensorList:
    shape = node.shape(0)
    if isinstance(node.inputs[0], Known):
        items: list[Any] = [Known(row) for row in node.known(0)]
    else:
        items = [_row(node, index) for index in range(shape[0])]
    return TensorList(tuple(items), shape[1:], node.numpy_of("element_dtype"))


def _row(node: SourceNode, index: int) -> Held:
    value, shape = node.x, node.shape(0)
    cut = value.op("Slice", starts=[index], ends=[index + 1], axes=[0]) if shape[0] > 1 else value
    return Held(cut.shaped(shape[1:]))


def _item(node: SourceNode, tensor_list: TensorList, index: int) -> Any:
    item = tensor_list.items[index]
    if item is not None:
        return item
    if tensor_list.shape is None:
        raise node.refuse(f"element {index} of the list was not set")
    return Known(np.zeros(tensor_list.shape, tensor_list.dtype))


def _set(node: SourceNode) -> TensorList:
    tensor_list, index = _list(node), node.integer(1)
    items = list(tensor_list.items)
    items += [None] * (index + 1 - len(items))
    items[index] = node.inputs[2]
    return TensorList(tuple(items), tensor_list.shape or node.shape(2), tensor_list.dtype)


def _stack(node: SourceNode) -> Any:
    tensor_list = _list(node)
    items = [_item(node, tensor_list, index) for index in range(len(tensor_list.items))]
    if all(isinstance(item, Known) for item in items):
        return Known(np.stack([item.array for item in items]))
    values = [node.of(item) for item in items]
    return concatenated([value.shaped((1, *value.tensor.shape)) for value in values], 0)


def _push(node: SourceNode) -> TensorList:
    tensor_list = _list(node)
    return TensorList((*tensor_list.items, node.inputs[1]), tensor_list.shape or node.shape(1), tensor_list.dtype)


def _pop(node: SourceNode) -> list[Any]:
    tensor_list = _list(node)
    return [TensorList(tensor_list.items[:-1], tensor_list.shape, tensor_list.dtype), _item(node, tensor_list, -1)]


def _if(node: SourceNode) -> list[Any]:
    functions = [node.function(key) for key in ("then_branch", "else_branch")]
    if isinstance(node.inputs[0], Known):
        return node.call(functions[0 if node.inputs[0].array.reshape(-1)[0] else 1], node.inputs[1:])
    return _computed(node, functions, [node.x.shaped(())])


def _case(node: SourceNode) -> list[Any]:
    functions = node.functions("branches")
    if isinstance(node.inputs[0], Known):
        number = int(node.inputs[0].array)
        return node.call(functions[number if 0 <= number < len(functions) else -1], node.inputs[1:])
    selector = node.x.shaped(())
    numbers = range(len(functions) - 1)
    return _computed(node, functions, [selector.op("Equal", selector.like(number)) for number in numbers])


def _computed(node: SourceNode, functions: Sequence[Any], conditions: list[Value]) -> list[Any]:
    """The outputs of the first of ``functions`` whose condition holds, or of the last, which has none."""
    writer = node.writer
    before = writer.variable_values()
    results, finals = [], []
    for function, taken in zip(functions, _each_taken(conditions), strict=True):
        writer.set_variables(before)
        writer.conditions.append(taken)
        results.append(node.call(function, node.inputs[1:]))
        writer.conditions.pop()
        finals.append(writer.variable_values())
    for number, final in enumerate(finals):
        writer.set_variables(before | final)
        finals[number] = writer.variable_values()
    outputs, values = list(results[-1]), finals[-1]
    for condition, branch in zip(conditions[::-1], results[-2::-1], strict=True):
        outputs = [_selected(node, condition, a, b) for a, b in zip(branch, outputs, strict=True)]
    for name in values:
        for condition, final in zip(conditions[::-1], finals[-2::-1], strict=True):
            if final[name].tensor.id != values[name].tensor.id:
                values[name] = condition.op("Where", final[name], values[name])
    writer.set_variables(values)
    return outputs


def _each_taken(conditions: Sequence[Value]) -> list[Value]:
    """Whether each branch is taken: ``conditions`` are those of all but the last, which is taken if none holds."""
    (last, *others) = (condition.op("Not") for condition in conditions)
    for other in others:
        last = last.op("And", other)
    return [*conditions, last]


def _selected(node: SourceNode, condition: Value, first: Imported, second: Imported) -> Any:
    """``first`` where the condition holds, else ``second``."""
    if isinstance(first, Variable) or isinstance(second, Variable):
        return first
    a, b = node.of(first), node.of(second)
    return condition.op("Where", a, cast_to(b, a.tensor.dtype.numpy))


RULES: dict[str, Rule] = {
    "Case": _case,
    "EmptyTensorList": lambda node: TensorList((), _element_shape(node, 0), node.numpy_of("element_dtype")),
    "If": _if,
    "NoOp": lambda node: [],
    "PartitionedCall": _call,
    "StatefulPartitionedCall": _call,
    "StatelessCase": _case,
    "StatelessIf": _if,
    "StatelessWhile": _while,
    "TensorListElementShape": lambda node: Known(np.asarray(_list(node).shape or (), node.numpy_of("shape_type"))),
    "TensorListFromTensor": _from_tensor,
    "TensorListGetItem": lambda node: _item(node, _list(node), node.integer(1)),
    "TensorListLength": lambda node: Known(np.asarray(len(_list(node).items), np.int32)),
    "TensorListPopBack": _pop,
    "TensorListPushBack": _push,
    "TensorListReserve": _reserve,
    "TensorListSetItem": _set,
    "TensorListStack": _stack,
    "While": _while,
}
