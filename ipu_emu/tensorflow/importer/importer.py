"""Importer: imports the ops of a section one by one, by the rule of their type, into a graph of the emulator.

An op whose inputs are all known is folded, by its rule if TensorFlow's result may depend on the processor. Variables
are in static single assignment form: reads give the current value, and each variable that was assigned is changed
once, at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ipu_emu.compiler.gradients.gradient import Gradient
from ipu_emu.compiler.rewriting.expansion import constants_of
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Op, Place, Role, StepPhase, Tensor
from ipu_emu.graph.dtype import BOOL, INT64, dtype_of
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops import TABLE, Value, append
from ipu_emu.ops.random.counter_rng import STREAM_ID, key_in
from ipu_emu.tensorflow.importer.node import Rule, SourceNode, refused
from ipu_emu.tensorflow.importer.op_order import in_order
from ipu_emu.tensorflow.importer.rules.table import RULES
from ipu_emu.tensorflow.importer.values import Held, Imported, Known, Variable, device_dtype, on_device
from ipu_emu.tensorflow.trace.folding import fold, is_inexact

_LAST = [0, 2, 3, 1]  # [N, C, H, W] as [N, H, W, C]
_FIRST = [0, 3, 1, 2]
#: Ops whose result depends only on shapes.
#: Arithmetic on scalars such as learning rates.
_OF_NUMBERS = frozenset(
    {"Add", "Sub", "Mul", "Div", "Pow", "Sqrt", "Reciprocal", "Neg", "Exp", "Log", "Cast", "ReshapeTo"}
)
#: Ops that pass lists, handles or any value through.
_TRANSPARENT = frozenset({"Identity", "IdentityN", "NoOp", "PartitionedCall", "StatefulPartitionedCall"})


@dataclass(frozen=True)
class StepPosition:
    """The phase of a step, and the place, of the ops that replace an op of TensorFlow."""

    phase: StepPhase = StepPhase.FORWARD
    place: Place = field(default_factory=Place)


@dataclass
class _State:
    """The current value of a variable, where it is used, and where it was assigned."""

    variable: Variable
    value: Value
    assigned: StepPosition | None = None
    phases: set[StepPhase] = field(default_factory=set)
    home: Place | None = None


#: Imports a marked op; returns None if the op has no marker.
Marked = Callable[[Any, list[Imported]], "list[Any] | None"]


class Importer:
    """Imports ops into ``graph``.

    ``position_of`` returns the position of an op; ``marked`` imports the ops with a marker.
    """

    def __init__(
        self, position_of: Callable[[Any], StepPosition], marked: Marked, *, replicas: int = 1, norm_group: int = 1
    ) -> None:
        self.graph = Graph()
        self.replicas, self.norm_group = replicas, norm_group
        self.position = StepPosition()
        self.values: dict[str, Imported] = {}
        self.variables: dict[str, _State] = {}
        self.gradients: list[Gradient] = []
        #: Of the branches that are being imported, those of enclosing ones first.
        self.conditions: list[Value] = []
        #: Where the ops that computed an id belong.
        self.positions: dict[str, StepPosition] = {}
        self._position_of, self._marked = position_of, marked
        self._label, self._op = "", None
        self._turned: dict[tuple[str, StepPosition], Value] = {}
        self._constants: dict[tuple[Any, ...], Value] = {}
        self._numbers: dict[Any, Value] = {}

    # Ops of TensorFlow

    def run(self, tf_ops: Iterable[Any]) -> None:
        """Import ``tf_ops``, which must be in topological order."""
        for op in tf_ops:
            self.position = self._position_of(op)
            self._import(op, self.values)

    def _import(self, op: Any, values: dict[str, Imported]) -> None:
        inputs = [values[tensor.name] for tensor in op.inputs]
        self._label, self._op = op.name, op
        outputs = self._marked(op, inputs)
        if outputs is None:
            outputs = self._outputs(op, inputs)
        for tensor, value in zip(op.outputs, outputs, strict=False):
            values[tensor.name] = Held(value) if isinstance(value, Value) else value

    def _outputs(self, op: Any, inputs: list[Imported]) -> list[Any]:
        rule = RULES.get(op.type)
        known = all(isinstance(value, Known) for value in inputs)
        if known and not op.op_def.is_stateful and op.type not in _TRANSPARENT and op.type != "Placeholder":
            if rule is not None and is_inexact(op) and (values := _Constants.outputs_of(op, inputs, rule)):
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
            node = SourceNode(op, inputs, self)
            outputs = rule(node)
            node.check_attributes()
        except EmulatorError as error:
            if str(op.name) in str(error):
                raise
            raise refused(op, str(error.args[0] if error.args else error)) from error
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise refused(op, f"its operands do not fit: {type(error).__name__}: {error}") from error
        return list(outputs) if isinstance(outputs, list | tuple) else [outputs]

    # Functions

    def function_of(self, op: Any, name: str) -> Any:
        """The graph of the function that the attribute ``name`` names."""
        return self._function(op, op.get_attr(name).name)

    def functions_of(self, op: Any, name: str) -> list[Any]:
        return [self._function(op, function.name) for function in op.get_attr(name)]

    def _function(self, op: Any, name: str) -> Any:
        graph = op.graph
        while graph is not None:
            function = graph._get_function(name)  # the graph of a function is not public
            if function is not None:
                body = getattr(function, "graph", None)
                if body is not None:
                    return body
            graph = getattr(graph, "outer_graph", None)
        raise refused(op, f"its function {name} was not found")

    def call(self, function: Any, inputs: Sequence[Imported]) -> list[Imported]:
        """Import the body of ``function`` in place; return its outputs."""
        values = {tensor.name: value for tensor, value in zip(function.inputs, inputs, strict=True)}
        outer = self._label, self._op
        everything = function.get_operations()
        for op in in_order(everything, {op.name: number for number, op in enumerate(everything)}):
            if op.type == "Placeholder" and op.outputs[0].name in values:
                continue
            self._import(op, values)
        self._label, self._op = outer
        return [values[tensor.name] for tensor in function.outputs]

    def loop(self, node: SourceNode, condition: Any, body: Any, values: Sequence[Imported]) -> list[Imported]:
        """The values after a loop whose number of iterations is computed on the device: one op with a body.

        Values that the body does not change are not part of its state.
        """
        carried = [number for number in range(len(values)) if not _passes_on(body, number)]
        for number in carried:
            if not isinstance(values[number], Known | Held):
                raise node.refuse(
                    "the number of its iterations is computed on the device, and it carries a list of tensors; give "
                    "it a number that is known when the program is compiled"
                )
        for value in values:
            if isinstance(value, Variable):
                self.read(value)
        starts = [node.of(values[number]) for number in carried]
        first = node.of(self.call(condition, values)[0]).shaped(())
        loop_body = self._loop_body(node, condition, body, values, [start.tensor for start in starts], carried)
        names = tuple(self.graph.unused(f"{self._label}:{number}") for number in range(len(carried)))
        inputs = ("", first.tensor.id, *(start.tensor.id for start in starts))
        where = self.position
        op = Op("Loop", inputs, names, {"body": loop_body}, "", 11, self._label, where.phase, where.place)
        ends = [Held(self.value(tensor)) for tensor in append(self.graph, op)]
        self.positions |= dict.fromkeys(names, where)
        results = list(values)
        for number, end in zip(carried, ends, strict=True):
            results[number] = end
        return results

    def _loop_body(
        self,
        node: SourceNode,
        condition: Any,
        body: Any,
        values: Sequence[Imported],
        starts: list[Tensor],
        carried: list[int],
    ) -> Graph:
        """A graph of (number, condition, states) -> (condition, states)."""
        outer, caches = self.graph, (dict(self._turned), dict(self._constants), dict(self._numbers))
        before = {name: state.value.tensor.id for name, state in self.variables.items()}
        self.graph = inner = Graph(parent=outer)
        heads = [Tensor(f"{self._label}/number", INT64, ()), Tensor(f"{self._label}/going", BOOL, ())]
        states = [replace(start, id=f"{self._label}/state/{number}") for number, start in enumerate(starts)]
        states = [Tensor(state.id, state.dtype, state.shape) for state in states]
        arguments = list(values)
        for tensor in (*heads, *states):
            inner.add(tensor)
            inner.inputs.append(tensor.id)
        for number, tensor in zip(carried, states, strict=True):
            arguments[number] = Held(self.value(tensor))
        try:
            after = self.call(body, arguments)
            after = [after[number] if number in carried else values[number] for number in range(len(values))]
            going = node.of(self.call(condition, after)[0]).shaped(())
            ends = [node.of(after[number]) for number in carried]
            inner.outputs = [self.copied(end).tensor.id for end in ends]
            inner.outputs.insert(0, going.op("And", going).tensor.id)
        finally:
            self.graph, (self._turned, self._constants, self._numbers) = outer, caches
        computed = "a loop whose number of iterations is computed on the device"
        if before != {name: state.value.tensor.id for name, state in self.variables.items()}:
            raise node.refuse(f"{computed} cannot change variables")
        if any(STREAM_ID in op.attributes for op in inner.ops):
            raise node.refuse(f"{computed} cannot draw random numbers")
        return inner

    # Ops of the emulator

    def value(self, tensor: Tensor) -> Value:
        """Return a tensor of the graph as a value to compute with."""
        return Value(tensor, self._emit, self.graph.constant)

    def _emit(self, type: str, inputs: Sequence[Value], attributes: dict[str, Any], outputs: int) -> list[Value]:
        return self.apply(type, inputs, attributes, outputs)

    def apply(self, type: str, inputs: Sequence[Value], attributes: dict[str, Any], outputs: int = 1) -> list[Value]:
        """Append an op at the current position; scalars of an update that were computed before are reused."""
        if key := self._key(type, inputs, attributes, outputs):
            if key not in self._numbers:
                self._numbers[key] = self._append(type, inputs, attributes, outputs)[0]
            return [self._numbers[key]]
        return self._append(type, inputs, attributes, outputs)

    def _key(self, type: str, inputs: Sequence[Value], attributes: dict[str, Any], outputs: int) -> Any:
        """The key of an op on scalars of an update, which TensorFlow repeats for each variable; else None."""
        single = outputs == 1 and inputs and all(value.tensor.nelms == 1 for value in inputs)
        if self.position.phase is not StepPhase.UPDATE or not single or type not in _OF_NUMBERS:
            return None
        return type, tuple(value.tensor.id for value in inputs), repr(sorted(attributes.items())), self.position

    def _append(self, type: str, inputs: Sequence[Value], attributes: dict[str, Any], outputs: int) -> list[Value]:
        domain = "" if ("", type) in TABLE.table else GRAPHCORE
        names = tuple(self.graph.unused(f"{self._label}:{index}") for index in range(outputs))
        where = self.position
        op = Op(
            type, tuple(value.tensor.id for value in inputs), names, attributes, domain, 10, self._label,
            where.phase, where.place,
        )  # fmt: skip
        tensors = append(self.graph, op)
        self.positions |= dict.fromkeys(names, where)
        return [self.value(tensor) for tensor in tensors]

    def constant(self, array: NDArray[Any]) -> Value:
        """Return a constant, the same for small arrays of equal values."""
        array = on_device(np.asarray(array))
        kind = dtype_of(array)
        key = (kind.name, array.shape, array.tobytes() if array.size <= 64 else id(array))
        if key not in self._constants:
            if not array.shape and kind.is_float:
                self._constants[key] = self.value(self.graph.constant(float(array), Tensor("", kind, ())))
                return self._constants[key]
            constant_id = self.graph.unused(f"constant/{len(self._constants)}")
            tensor = self.graph.add(
                Tensor(constant_id, kind, array.shape, Role.CONSTANT), np.ascontiguousarray(array)
            )
            self._constants[key] = self.value(tensor)
        return self._constants[key]

    def plain(self, held: Held) -> Value:
        """Return a tensor in TensorFlow's order of axes."""
        return self._turn(held.value, _LAST) if held.channels_first else held.value

    def first(self, held: Held) -> Value:
        """Return a batch of images in the order [N, C, H, W]."""
        return held.value if held.channels_first else self._turn(held.value, _FIRST)

    def _turn(self, value: Value, perm: list[int]) -> Value:
        """Transpose a batch of images once; the backward pass reuses the result of the forward pass of its place."""
        place = self.position.place
        for phase in (StepPhase.FORWARD, self.position.phase):
            if (known := self._turned.get((value.tensor.id, StepPosition(phase, place)))) is not None:
                return known
        turned = self._turned[value.tensor.id, self.position] = self._turned_now(value, perm)
        return turned

    def _turned_now(self, value: Value, perm: list[int]) -> Value:
        if value.tensor.shape[-2:] == (1, 1) or value.tensor.shape[1:3] == (1, 1):  # no element moves
            return value.shaped(tuple(value.tensor.shape[axis] for axis in perm))
        return value.op("Transpose", perm=perm)

    def random(self, type: str, shape: Sequence[int], numpy: Any, values: Sequence[float], salt: str) -> Value:
        """Return random numbers that depend on ``salt`` and on the replica, the step and the micro-batch."""
        key = self.value(self.graph.tensor(key_in(self.graph)))
        attributes = {
            "shape": list(shape),
            "dtype": device_dtype(numpy).onnx,
            "values": list(values),
            STREAM_ID: crc32(salt.encode()),
        }
        return self.apply(type, [key], attributes)[0]

    def copied(self, value: Value) -> Value:
        """Return a copy of ``value`` as a separate tensor."""
        return value.op("Sum")

    # Variables

    def _state(self, variable: Variable) -> _State:
        if variable.name not in self.variables:
            tensor = self.graph.add(Tensor(f"variable/{variable.name}", variable.dtype, variable.shape, Role.WEIGHT))
            self.variables[variable.name] = _State(variable, self.value(tensor))
        state = self.variables[variable.name]
        state.phases.add(self.position.phase)
        if state.home is None:
            state.home = self.position.place
        return state

    def read(self, variable: Variable) -> Value:
        """Return the current value of a variable."""
        return self._state(variable).value

    def assign(self, variable: Variable, value: Value) -> None:
        """Change the value of a variable."""
        state = self._state(variable)
        if value.tensor.shape != variable.shape:
            value = value.spread_to(variable.shape)
        state.value, state.assigned = value, self.position

    def variable_values(self) -> dict[str, Value]:
        """The current values of the variables that have been used."""
        return {name: state.value for name, state in self.variables.items()}

    def set_variables(self, values: Mapping[str, Value]) -> None:
        """Give the variables that have been used these values, and the others the values before the step."""
        for name, state in self.variables.items():
            state.value = values.get(name) or self.value(self.graph.tensor(self.id_of(name)))

    def home_of(self, name: str) -> Place | None:
        """The place of the first use of a variable."""
        state = self.variables.get(name)
        return None if state is None else state.home

    def write_variables(self) -> list[str]:
        """Append the changes of all assigned variables, and set the role of variables that only the update uses.

        Return the names of the variables that were assigned.
        """
        changed = [state for state in self.variables.values() if state.assigned is not None]
        changed = [state for state in changed if state.value.tensor.id != self.id_of(state.variable.name)]
        held = {self.id_of(name) for name in self.variables}
        for state in changed:
            self.position = self._writing(state)
            if state.value.tensor.id in held or state.value.tensor.role is Role.CONSTANT:
                state.value = self._own(state.value)
        for state in changed:
            self.position, self._label = self._writing(state), f"assign/{state.variable.name}"
            variable = self.value(self.graph.tensor(self.id_of(state.variable.name)))
            self.apply("CopyVarUpdate", [variable, state.value], {})
        for name, state in self.variables.items():
            if state.phases == {StepPhase.UPDATE}:
                id = self.id_of(name)
                self.graph.tensors[id] = replace(self.graph.tensor(id), role=Role.STATE)
        return [state.variable.name for state in changed]

    def _writing(self, state: _State) -> StepPosition:
        assert state.assigned is not None
        return StepPosition(state.assigned.phase, state.home or state.assigned.place)

    def _own(self, value: Value) -> Value:
        """A copy, which is not folded, of a variable or a constant."""
        self._label = f"copy/{value.tensor.id}"
        if value.tensor.role is not Role.CONSTANT:
            return self.copied(value)
        name = self.graph.unused(f"{value.tensor.id}/copy")
        op = Op("Sum", (value.tensor.id,), (name,), {}, "", 10, name, self.position.phase, self.position.place)
        tensor = replace(value.tensor, id=name, role=Role.COMPUTED)
        self.graph.append(op, [tensor])
        self.positions[name] = self.position
        return self.value(tensor)

    def id_of(self, name: str) -> str:
        """The id of the tensor that holds a variable."""
        return f"variable/{name}"


class _Constants(Importer):
    """Imports one op on constants, which have TensorFlow's types, to compute its outputs now."""

    @classmethod
    def outputs_of(cls, op: Any, inputs: Sequence[Imported], rule: Rule) -> list[Known]:
        """The outputs of an op with known inputs; none where its rule does not take them."""
        aside = cls(lambda _: StepPosition(), lambda *_: None)
        aside._label = op.name
        try:
            node = SourceNode(op, inputs, aside)
            results = rule(node)
            node.check_attributes()
            results = results if isinstance(results, list | tuple) else [results]
            values = [aside._value(result) for result in results[: len(op.outputs)]]
            arrays = constants_of(aside.graph, [value.tensor.id for value in values])
        except (EmulatorError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            return []
        kinds = [tensor.dtype.as_numpy_dtype for tensor in op.outputs]
        return [
            Known(array.reshape(value.tensor.shape).astype(kind))
            for array, value, kind in zip(arrays, values, kinds, strict=False)
        ]

    def _value(self, result: Any) -> Value:
        return result if isinstance(result, Value) else SourceNode(None, [result], self).x

    def constant(self, array: NDArray[Any]) -> Value:
        array = np.asarray(array)
        tensor = Tensor(self.graph.unused("constant"), dtype_of(array), array.shape, Role.CONSTANT)
        return self.value(self.graph.add(tensor, array))


def _passes_on(body: Any, number: int) -> bool:
    """Whether the body of a loop returns a value unchanged."""
    tensor = body.outputs[number]
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor is body.inputs[number]
