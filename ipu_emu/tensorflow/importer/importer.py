"""Importer: imports the ops of a section one by one, by the rule of their type, into a graph of the emulator.

An op whose inputs are all known is folded, by its rule if TensorFlow's result may depend on the processor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.compiler.rewriting.expansion import constants_of
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Role, Tensor
from ipu_emu.graph.dtype import dtype_of
from ipu_emu.ops import Value
from ipu_emu.tensorflow.importer.graph_writer import GraphWriter, StepPosition
from ipu_emu.tensorflow.importer.node import Rule, SourceNode, refused
from ipu_emu.tensorflow.importer.op_order import in_order
from ipu_emu.tensorflow.importer.rules.table import RULES
from ipu_emu.tensorflow.importer.values import Held, Imported, Known
from ipu_emu.tensorflow.trace.folding import fold, is_inexact

#: Ops that pass lists, handles or any value through.
_TRANSPARENT = frozenset({"Identity", "IdentityN", "NoOp", "PartitionedCall", "StatefulPartitionedCall"})
#: Imports a marked op; returns None if the op has no marker.
Marked = Callable[[Any, list[Imported]], "list[Any] | None"]


class Importer:
    """Imports ops with ``writer``; ``marked`` imports those with a marker. ``values`` has their outputs by name."""

    def __init__(self, writer: GraphWriter, marked: Marked) -> None:
        self.writer, self._marked = writer, marked
        self.values: dict[str, Imported] = {}

    def run(self, op: Any, position: StepPosition) -> None:
        """Import an op whose inputs have been imported."""
        self.writer.position = position
        self._import(op, self.values)

    def node(self, op: Any, inputs: Sequence[Imported]) -> SourceNode:
        """Return ``op`` as rules take it."""
        return SourceNode(op, inputs, self.writer, self.call)

    def call(self, function: Any, inputs: Sequence[Imported]) -> list[Imported]:
        """Import the body of ``function`` in place; return its outputs."""
        values = {tensor.name: value for tensor, value in zip(function.inputs, inputs, strict=True)}
        label, ops = self.writer.label, function.get_operations()
        for op in in_order(ops, {op.name: number for number, op in enumerate(ops)}):
            if op.type != "Placeholder" or op.outputs[0].name not in values:
                self._import(op, values)
        self.writer.label = label
        return [values[tensor.name] for tensor in function.outputs]

    def _import(self, op: Any, values: dict[str, Imported]) -> None:
        inputs = [values[tensor.name] for tensor in op.inputs]
        self.writer.label = op.name
        outputs = self._marked(op, inputs)
        if outputs is None:
            outputs = self._outputs(op, inputs)
        for tensor, value in zip(op.outputs, outputs, strict=False):
            values[tensor.name] = Held(value) if isinstance(value, Value) else value

    def _outputs(self, op: Any, inputs: list[Imported]) -> list[Any]:
        rule = RULES.get(op.type)
        known = all(isinstance(value, Known) for value in inputs)
        if known and not op.op_def.is_stateful and op.type not in _TRANSPARENT and op.type != "Placeholder":
            if rule is not None and is_inexact(op) and (values := _constant_outputs(op, inputs, rule)):
                return values
            try:
                return [Known(array) for array in fold(op, [value.array for value in inputs])]  # type: ignore[union-attr]
            except Exception as error:  # an op without a kernel for eager execution
                if rule is None:
                    raise refused(op, f"it cannot be computed when the program is compiled: {error}") from error
        if rule is None:
            raise refused(
                op,
                "the emulated IPU has no such op; compute it in the data set, on the host before the program, or by "
                "other ops",
            )
        try:
            node = self.node(op, inputs)
            outputs = rule(node)
            node.check_attributes()
        except EmulatorError as error:
            if str(op.name) in str(error):
                raise
            raise refused(op, str(error.args[0] if error.args else error)) from error
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise refused(op, f"its operands do not fit: {type(error).__name__}: {error}") from error
        return list(outputs) if isinstance(outputs, list | tuple) else [outputs]


class _ConstantWriter(GraphWriter):
    """Keeps constants in TensorFlow's types."""

    def constant(self, array: NDArray[Any]) -> Value:
        array = np.asarray(array)
        tensor = Tensor(self.graph.unused("constant"), dtype_of(array), array.shape, Role.CONSTANT)
        return self.value(self.graph.add(tensor, array))


def _constant_outputs(op: Any, inputs: Sequence[Imported], rule: Rule) -> list[Known]:
    """Compute the outputs of an op with known inputs by its rule; none where the rule does not take them."""
    writer = _ConstantWriter()
    writer.label = op.name
    try:
        node = Importer(writer, lambda *_: None).node(op, inputs)
        results = rule(node)
        node.check_attributes()
        results = results if isinstance(results, list | tuple) else [results]
        values = [node.of(result) for result in results[: len(op.outputs)]]
        arrays = constants_of(writer.graph, [value.tensor.id for value in values])
    except (EmulatorError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return []
    kinds = [tensor.dtype.as_numpy_dtype for tensor in op.outputs]
    return [
        Known(array.reshape(value.tensor.shape).astype(kind))
        for array, value, kind in zip(arrays, values, kinds, strict=False)
    ]
