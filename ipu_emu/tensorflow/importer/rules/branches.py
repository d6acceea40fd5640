"""Rules of branches: if the condition is computed on the device, all are computed, and the results selected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipu_emu.ops import Value
from ipu_emu.tensorflow.importer.node import Rule, SourceNode
from ipu_emu.tensorflow.importer.rules.arithmetic import cast_to
from ipu_emu.tensorflow.importer.values import Imported, Known, Variable


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


RULES: dict[str, Rule] = {"Case": _case, "If": _if, "StatelessCase": _case, "StatelessIf": _if}
