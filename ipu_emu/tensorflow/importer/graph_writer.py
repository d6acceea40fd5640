"""Graph writer: appends ops to the graph of a section, at the position of the op of TensorFlow that they replace.

Variables are in static single assignment form: reads give the current value, and each variable that was assigned is
changed once, at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ipu_emu.graph import Graph, Op, Place, Role, StepPhase, Tensor
from ipu_emu.graph.dtype import dtype_of
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops import TABLE, Value, append
from ipu_emu.ops.random.counter_rng import STREAM_ID, key_in
from ipu_emu.tensorflow.importer.values import Held, Variable, device_dtype, id_of, on_device

_LAST = [0, 2, 3, 1]  # [N, C, H, W] as [N, H, W, C]
_FIRST = [0, 3, 1, 2]
#: Arithmetic on scalars such as learning rates.
_OF_NUMBERS = frozenset(
    {"Add", "Sub", "Mul", "Div", "Pow", "Sqrt", "Reciprocal", "Neg", "Exp", "Log", "Cast", "ReshapeTo"}
)


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


class GraphWriter:
    """Appends ops at ``position``, with ids that begin with ``label``.

    ``norm_group``: the number of replicas that share the statistics of a batch normalisation.
    """

    def __init__(self, *, norm_group: int = 1) -> None:
        self.graph = Graph()
        self.norm_group = norm_group
        self.position, self.label = StepPosition(), ""
        #: Of the branches that are being imported, those of enclosing ones first.
        self.conditions: list[Value] = []
        self._variables: dict[str, _State] = {}
        self._turned: dict[tuple[str, StepPosition], Value] = {}
        self._constants: dict[tuple[Any, ...], Value] = {}
        self._numbers: dict[Any, Value] = {}

    def value(self, tensor: Tensor) -> Value:
        """Return a tensor of the graph as a value to compute with."""
        return Value(tensor, self.apply, self.graph.constant)

    def apply(self, type: str, inputs: Sequence[Value], attributes: dict[str, Any], outputs: int = 1) -> list[Value]:
        """Append an op at the current position; scalars of an update that were computed before are reused."""
        ids = [value.tensor.id for value in inputs]
        if key := self._key(type, inputs, attributes, outputs):
            if key not in self._numbers:
                self._numbers[key] = self.append(type, ids, attributes, outputs)[0]
            return [self._numbers[key]]
        return self.append(type, ids, attributes, outputs)

    def _key(self, type: str, inputs: Sequence[Value], attributes: dict[str, Any], outputs: int) -> Any:
        """The key of an op on scalars of an update, which TensorFlow repeats for each variable; else None."""
        single = outputs == 1 and inputs and all(value.tensor.nelms == 1 for value in inputs)
        if self.position.phase is not StepPhase.UPDATE or not single or type not in _OF_NUMBERS:
            return None
        return type, tuple(value.tensor.id for value in inputs), repr(sorted(attributes.items())), self.position

    def append(
        self, type: str, ids: Sequence[str], attributes: dict[str, Any], outputs: int, version: int = 10
    ) -> list[Value]:
        """Append an op that reads the tensors ``ids``, of ONNX if that has an op of the same name."""
        domain = "" if ("", type) in TABLE.table else GRAPHCORE
        names = tuple(self.graph.unused(f"{self.label}:{index}") for index in range(outputs))
        phase, place = self.position.phase, self.position.place
        op = Op(type, tuple(ids), names, attributes, domain, version, self.label, phase, place)
        return [self.value(tensor) for tensor in append(self.graph, op)]

    @contextmanager
    def body(self) -> Iterator[Graph]:
        """Context manager: ops are appended to a new graph, the body of an op, which may read the current one."""
        outer, caches = self.graph, (dict(self._turned), dict(self._constants), dict(self._numbers))
        self.graph = Graph(parent=outer)
        try:
            yield self.graph
        finally:
            self.graph, (self._turned, self._constants, self._numbers) = outer, caches

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
        if variable.name not in self._variables:
            tensor = self.graph.add(Tensor(id_of(variable.name), variable.dtype, variable.shape, Role.WEIGHT))
            self._variables[variable.name] = _State(variable, self.value(tensor))
        state = self._variables[variable.name]
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
        return {name: state.value for name, state in self._variables.items()}

    def set_variables(self, values: Mapping[str, Value]) -> None:
        """Give the variables that have been used these values, and the others the values before the step."""
        for name, state in self._variables.items():
            state.value = values.get(name) or self.value(self.graph.tensor(id_of(name)))

    def is_updated(self, name: str) -> bool:
        """Whether a weight update has assigned a variable."""
        state = self._variables.get(name)
        return state is not None and state.assigned is not None and state.assigned.phase is StepPhase.UPDATE

    def home_of(self, name: str) -> Place | None:
        """The place of the first use of a variable."""
        state = self._variables.get(name)
        return None if state is None else state.home

    def variables(self) -> dict[str, Variable]:
        """The variables that have been used."""
        return {name: state.variable for name, state in self._variables.items()}

    def write_variables(self) -> list[str]:
        """Append the changes of all assigned variables, and set the role of variables that only the update uses.

        Return the names of the variables that were assigned.
        """
        changed = [state for state in self._variables.values() if state.assigned is not None]
        changed = [state for state in changed if state.value.tensor.id != id_of(state.variable.name)]
        held = {id_of(name) for name in self._variables}
        for state in changed:
            self.position = self._writing(state)
            if state.value.tensor.id in held or state.value.tensor.role is Role.CONSTANT:
                state.value = self.own(state.value)
        for state in changed:
            self.position, self.label = self._writing(state), f"assign/{state.variable.name}"
            variable = self.value(self.graph.tensor(id_of(state.variable.name)))
            self.apply("CopyVarUpdate", [variable, state.value], {})
        for name, state in self._variables.items():
            if state.phases == {StepPhase.UPDATE}:
                id = id_of(name)
                self.graph.tensors[id] = replace(self.graph.tensor(id), role=Role.STATE)
        return [state.variable.name for state in changed]

    def _writing(self, state: _State) -> StepPosition:
        assert state.assigned is not None
        return StepPosition(state.assigned.phase, state.home or state.assigned.place)

    def own(self, value: Value) -> Value:
        """A copy, which is not folded, of a variable or a constant."""
        self.label = f"copy/{value.tensor.id}"
        if value.tensor.role is not Role.CONSTANT:
            return self.copied(value)
        name = self.graph.unused(f"{value.tensor.id}/copy")
        op = Op("Sum", (value.tensor.id,), (name,), {}, "", 10, name, self.position.phase, self.position.place)
        tensor = replace(value.tensor, id=name, role=Role.COMPUTED)
        self.graph.append(op, [tensor])
        return self.value(tensor)
