"""Registry: the table of ops; one entry says all there is to know of an op."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from ipu_emu.errors import EmulatorError, InternalError
from ipu_emu.graph import Graph, Op
from ipu_emu.ops.core.adjoint import GradRule
from ipu_emu.ops.core.cost import CostRule
from ipu_emu.ops.core.node import Made, Node

__all__ = [
    "Bound",
    "Expand",
    "GradRule",
    "Kernel",
    "OpDef",
    "Registry",
    "ShapeRule",
    "Step",
    "Workspace",
    "always",
    "never",
    "unreached",
]

#: One prepared call: reads and writes arrays that it already holds, and allocates nothing.
Step = Callable[[], object]


@dataclass(frozen=True)
class Bound:
    """An op with its arrays: logical shapes, float32 wherever the graph says FLOAT16, unless its entry takes halves.

    An array may be stored in any order of its axes; ``scratch`` has what ``workspace`` asked for.
    """

    node: Node
    inputs: tuple[NDArray[Any] | None, ...]
    outputs: tuple[NDArray[Any], ...]
    scratch: tuple[NDArray[Any], ...]

    def input(self, index: int) -> NDArray[Any]:
        array = self.inputs[index]
        assert array is not None
        return array


#: Prepares the call of an op on its arrays.
Kernel = Callable[[Bound], Step]

ShapeRule = Callable[[Node], Made]

#: Sizes, in float32 elements, of the scratch arrays of an op.
Workspace = Callable[[Node], list[int]]


#: What an op without a kernel makes: one array per output.
Known = Callable[[Node], Sequence[NDArray[Any]]]

#: The ops that take the place of one; None where it stays.
Expand = Callable[[Graph, Op], "Sequence[Op] | None"]


def nothing(node: Node) -> list[int]:
    return []


def never(node: Node) -> bool:
    return False


def always(node: Node) -> bool:
    return True


def unreached(bound: Bound) -> Step:
    """The kernel of ops that others have taken the place of before anything runs."""
    raise InternalError(f"{bound.node.op.type} was not expanded")


@dataclass(frozen=True)
class OpDef:
    """One entry: shape rule, kernel, gradient, cost, flags.

    view_of      output 0 has the elements of this input: no call is needed where their storage orders agree
    updates      outputs, in order, take the places of these inputs
    elementwise  operands of the shape of output 0 are all stored in one order
    halves       the kernel reads and writes FLOAT16 itself, with float32 in between
    spatial      these operands, inputs first and then outputs, are stored [C, H, W, N], so that every inner
                 loop runs over the batch
    given        inputs by index that must be known when the graph is compiled; each becomes an attribute then
    known        computes the outputs when the graph is built; such an op has no kernel
    expand       the ops that take the place of this one when the graph is compiled
    folded       the outputs, where they are known although the op has no kernel; else None
    random       depends on the seed of its replica, so that it is not known even if its inputs are
    """

    type: str
    inputs: tuple[int, int | None]
    shape: ShapeRule
    kernel: Kernel | None
    cost: CostRule
    grad: GradRule | None = None
    workspace: Workspace = nothing
    view_of: int | None = None
    updates: tuple[int, ...] = ()
    elementwise: bool = False
    spatial: tuple[int, ...] = ()
    halves: Callable[[Node], bool] = never
    domain: str = ""
    given: Mapping[int, str] = field(default_factory=dict)
    known: Known | None = None
    expand: Expand | None = None
    folded: Callable[[Node], Sequence[NDArray[Any]] | None] | None = None
    random: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return self.domain, self.type


class Registry:
    """OpDefs by domain and type."""

    def __init__(self, families: Iterable[Iterable[OpDef]]) -> None:
        self.table: Mapping[tuple[str, str], OpDef] = {e.key: e for family in families for e in family}

    def __getitem__(self, op: Op) -> OpDef:
        try:
            return self.table[op.domain, op.type]
        except KeyError:
            raise EmulatorError(
                f"No op '{op.type}' in domain '{op.domain or 'ai.onnx'}'; there are "
                + ", ".join(sorted(type for domain, type in self.table if domain == op.domain))
            ) from None

    def in_place(self, op: Op) -> list[tuple[str, int]]:
        """Each output that takes the place of an input, and the number of that input; some ops have fewer states."""
        return list(zip(op.outputs, self[op].updates, strict=False))
