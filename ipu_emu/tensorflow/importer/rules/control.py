"""Rules of functions, loops and lists of tensors.

A called function is imported in place. A loop is unrolled; its condition must be known for each iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ipu_emu.ops import Value
from ipu_emu.tensorflow.importer.node import Rule, SourceNode
from ipu_emu.tensorflow.importer.rules.arithmetic import cast_to
from ipu_emu.tensorflow.importer.values import Held, Imported, Known, TensorList, Variable

#: The most iterations of a loop that are unrolled.
_MOST_ITERATIONS = 4096


def _call(node: SourceNode) -> list[Imported]:
    return node.writer.call(node.writer.function_of(node.op, "f"), node.inputs)


def _while(node: SourceNode) -> list[Imported]:
    condition, body = (node.writer.function_of(node.op, name) for name in ("cond", "body"))
    values = list(node.inputs)
    for _ in range(_MOST_ITERATIONS + 1):
        (going,) = node.writer.call(condition, values)
        if not isinstance(going, Known):
            return node.writer.loop(node, condition, body, values)
        if not going.array:
            return values
        values = list(node.writer.call(body, values))
    raise node.refuse(f"the loop has more than {_MOST_ITERATIONS} iterations, which is too many to unroll")


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
    rows = [value.shaped((1, *value.tensor.shape)) for value in values]
    return rows[0].op("Concat", *rows[1:], axis=0) if len(rows) > 1 else rows[0]


def _push(node: SourceNode) -> TensorList:
    tensor_list = _list(node)
    return TensorList((*tensor_list.items, node.inputs[1]), tensor_list.shape or node.shape(1), tensor_list.dtype)


def _pop(node: SourceNode) -> list[Any]:
    tensor_list = _list(node)
    return [TensorList(tensor_list.items[:-1], tensor_list.shape, tensor_list.dtype), _item(node, tensor_list, -1)]


def _if(node: SourceNode) -> list[Any]:
    functions = [node.writer.function_of(node.op, key) for key in ("then_branch", "else_branch")]
    if isinstance(node.inputs[0], Known):
        return node.writer.call(functions[0 if node.inputs[0].array.reshape(-1)[0] else 1], node.inputs[1:])
    return _computed(node, functions, [node.x.shaped(())])


def _case(node: SourceNode) -> list[Any]:
    functions = node.writer.functions_of(node.op, "branches")
    if isinstance(node.inputs[0], Known):
        number = int(node.inputs[0].array)
        return node.writer.call(functions[number if 0 <= number < len(functions) else -1], node.inputs[1:])
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
        results.append(writer.call(function, node.inputs[1:]))
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
