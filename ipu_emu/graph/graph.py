"""Graph: ops in a valid order of execution, their tensors, and the data of weights and constants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import EmulatorError
from ipu_emu.graph.op import Op
from ipu_emu.graph.tensor import Role, Tensor

#: The key in ``metadata`` of the name of the program that exported a model.
IMPORTED_FROM = "imported_from"
#: The key under which PyTorch's exporter lists the parameters and buffers of the module.
SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"


@dataclass
class Graph:
    """A model: every id is made once, before it is used.

    The body of an op such as a loop is a graph with a ``parent``, whose tensors it may use: those are ``captured``.
    """

    tensors: dict[str, Tensor] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    data: dict[str, NDArray[Any]] = field(default_factory=dict)  # weights, states, scalars, constants
    outputs: list[str] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)  # properties without a field in ONNX
    name: str = "ipu_emu"
    parent: Graph | None = None
    inputs: list[str] = field(default_factory=list)  # of a body, in order
    captured: list[str] = field(default_factory=list)
    #: The number of the last id that ``unused`` returned for each base; a copy starts again.
    _last_numbers: dict[str, int] = field(default_factory=dict, repr=False, compare=False)

    def add(self, tensor: Tensor, data: NDArray[Any] | None = None) -> Tensor:
        """Add a tensor that is not an output of an op."""
        if tensor.id in self.tensors:
            raise EmulatorError(f"Tensor '{tensor.id}' already exists; give the second one another name")
        self.tensors[tensor.id] = tensor
        if data is not None:
            self.data[tensor.id] = data
        return tensor

    def append(self, op: Op, outputs: Iterable[Tensor]) -> Op:
        """Add an op with its output tensors."""
        for tensor in outputs:
            self.add(tensor)
        self.ops.append(op)
        return op

    def tensor(self, id: str) -> Tensor:
        """Return the tensor with this id; raise EmulatorError if there is none."""
        if id not in self.tensors and self.parent is not None:
            self.capture(id)
        try:
            return self.tensors[id]
        except KeyError:
            raise EmulatorError(f"No tensor with id '{id}' in the graph") from None

    def capture(self, id: str) -> None:
        """Add a tensor of the parent graph to this body, with its value if it is constant."""
        assert self.parent is not None
        outer = self.parent.tensor(id)
        constant = outer.role is Role.CONSTANT
        self.tensors[id] = replace(outer, role=Role.CONSTANT if constant else Role.COMPUTED)
        self.captured.append(id)
        if constant:
            self.data[id] = self.parent.data[id]

    def capturing(self, names: Mapping[str, str]) -> Graph:
        """Return a copy of this body for a parent whose tensors were renamed."""
        new = {id: names.get(id, id) for id in self.captured}
        body = self.copy()
        body.rename(new)
        body.data = {new.get(id, id): data for id, data in self.data.items()}
        body.outputs = [new.get(id, id) for id in self.outputs]
        body.captured = list(new.values())
        body.ops = [replace(op, attributes=capturing(op.attributes, new)) for op in body.ops]
        return body

    def knows(self, id: str) -> bool:
        """Whether an id is used, in this graph or an enclosing one."""
        return id in self.tensors or (self.parent is not None and self.parent.knows(id))

    def with_role(self, *roles: Role) -> list[Tensor]:
        """Return all tensors of these roles, in the order in which they were added."""
        return [tensor for tensor in self.tensors.values() if tensor.role in roles]

    def producers(self) -> dict[str, Op]:
        """Return the op that makes each tensor, by id."""
        return {output: op for op in self.ops for output in op.outputs}

    def unused(self, base: str) -> str:
        """Return the first unused id of ``base``, ``base/1``, ``base/2``, ..."""
        count = self._last_numbers.get(base, 0)
        name = f"{base}/{count}" if count else base
        while self.knows(name):
            count += 1
            name = f"{base}/{count}"
        self._last_numbers[base] = count
        return name

    def rename(self, names: Mapping[str, str]) -> None:
        """Rename tensors, all at once."""
        self.tensors = {
            names.get(id, id): replace(tensor, id=names[id]) if id in names else tensor
            for id, tensor in self.tensors.items()
        }
        self.ops = [_renamed(op, names) for op in self.ops]

    def copy(self) -> Graph:
        """Return a copy that can be changed independently; arrays are shared."""
        return replace(
            self,
            tensors=dict(self.tensors),
            ops=list(self.ops),
            data=dict(self.data),
            outputs=list(self.outputs),
            metadata=dict(self.metadata),
            _last_numbers={},
        )

    def constant(self, value: Any, like: Tensor) -> Tensor:
        """Add a scalar constant of the element type of ``like``, once per value."""
        id = f"constant_{like.dtype}_{float(value)!r}"
        if id not in self.tensors:
            data = np.array(value, dtype=like.dtype.numpy)
            self.add(Tensor(id, like.dtype, (), Role.CONSTANT), data)
        return self.tensors[id]

    def __str__(self) -> str:
        return "\n".join(str(op) for op in self.ops)


def _renamed(op: Op, names: Mapping[str, str]) -> Op:
    if names.keys().isdisjoint((*op.inputs, *op.outputs, op.guard)):
        return op
    return replace(
        op,
        inputs=tuple(names.get(i, i) for i in op.inputs),
        outputs=tuple(names.get(o, o) for o in op.outputs),
        guard=names.get(op.guard, op.guard),
    )


def capturing(attributes: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return attributes with their bodies adapted to renamed tensors."""
    return {key: v.capturing(names) if isinstance(v, Graph) else v for key, v in attributes.items()}
