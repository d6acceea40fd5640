"""Op definition: one entry of the table of ops, with all properties of an op."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx
from numpy.typing import NDArray

from ipu_emu.errors import EmulatorError, InternalError
from ipu_emu.graph import Op
from ipu_emu.ops.codegen.fused_store import FusedStore
from ipu_emu.ops.codegen.held_copies import HeldCopies
from ipu_emu.ops.core.adjoint import GradRule
from ipu_emu.ops.core.formulas import Formula
from ipu_emu.ops.core.node import Node, ShapeRule
from ipu_emu.ops.core.rewrite import Rewrite
from popdist_py.messages.suggestion import did_you_mean

__all__ = [
    "BoundOp", "Call", "CallChain", "CostRule", "Expand", "GradRule", "Kernel", "OpCost", "OpDef", "Registry",
    "ShapeRule", "StoringKernel", "Workspace", "always", "call_chain", "copy_cost", "expanded_op", "flops",
    "never", "nothing", "per_element", "replaced_before_run",
]  # fmt: skip


@dataclass(frozen=True)
class OpCost:
    """The cost of one call on one micro-batch; bytes are operands read plus results written."""

    flops: int
    bytes: int


CostRule = Callable[[Node], OpCost]


def flops(count: Callable[[Node], int]) -> CostRule:
    """An op of ``count(node)`` operations that reads and writes each operand once."""
    return lambda node: OpCost(count(node), _operand_bytes(node))


def per_element(operations: int) -> CostRule:
    """An op of ``operations`` for each element of its first output."""
    return flops(lambda node: operations * node.outputs[0].nelms)


def copy_cost(node: Node) -> OpCost:
    """The cost of an op that only copies its operands."""
    return OpCost(0, _operand_bytes(node))


def _operand_bytes(node: Node) -> int:
    return sum(t.nbytes for t in (*node.inputs, *node.outputs) if t is not None)


#: One prepared call: reads and writes arrays that it already holds, and allocates nothing.
Call = Callable[[], object]


@dataclass(frozen=True)
class BoundOp:
    """An op with its arrays in logical shapes; FLOAT16 tensors are float32 arrays unless the entry takes halves.

    An array may be stored in any order of its axes; ``scratch`` holds the arrays whose sizes ``workspace`` gives.
    No step changes the inputs whose indices are in ``held_inputs``; ``held`` keeps copies of them.
    """

    node: Node
    inputs: tuple[NDArray[Any] | None, ...]
    outputs: tuple[NDArray[Any], ...]
    scratch: tuple[NDArray[Any], ...]
    held: HeldCopies = field(default_factory=HeldCopies)
    held_inputs: frozenset[int] = frozenset()

    def input(self, index: int) -> NDArray[Any]:
        array = self.inputs[index]
        assert array is not None
        return array

    def held_of(self, index: int) -> HeldCopies | None:
        """The copies of an input that no step changes; None for other inputs."""
        return self.held if index in self.held_inputs else None


#: Prepares the call of an op on its arrays.
Kernel = Callable[[BoundOp], Call]

#: Prepares the call of an op that stores a function of its output instead of it; None where it cannot.
StoringKernel = Callable[[BoundOp, FusedStore], Call | None]

#: Sizes, in float32 elements, of the scratch arrays of an op.
Workspace = Callable[[Node], list[int]]


#: The outputs of an op without a kernel.
ConstantOutputs = Callable[[Node], Sequence[NDArray[Any]]]

#: Writes the ops that replace one; an op for which it writes none stays.
Expand = Callable[[Rewrite, Node], None]


def nothing(node: Node) -> list[int]:
    return []


def never(node: Node) -> bool:
    return False


def always(node: Node) -> bool:
    return True


def replaced_before_run(bound: BoundOp) -> Call:
    """The kernel of ops that are replaced by others before anything runs."""
    raise InternalError(f"{bound.node.op.type} was not expanded")


@dataclass(frozen=True)
class OpDef:
    """One entry: shape rule, kernel, gradient, cost, flags.

    view_of           output 0 is a view of this input: no call is needed where their storage orders agree
    updates           outputs, in order, overwrite these inputs
    elementwise       operands that have the shape of output 0 must all be stored in the same order
    takes_half        the kernel reads and writes FLOAT16 itself and computes in float32
    batch_innermost   these operands (inputs first, then outputs) are stored [C, H, W, N], so that every inner
                      loop runs over the batch
    constant_inputs   inputs by index that must be constant when the graph is compiled, and the attribute that
                      each becomes
    constant_outputs  computes the outputs when the graph is built; such an op has no kernel
    expand            writes the ops that replace this one when the graph is compiled
    folded_outputs    the outputs, where they can be computed when the graph is built although the op has no
                      kernel; else None
    formula           the function that a fused kernel computes for each element; without one the op is never fused
    fused_store       prepares a call that stores a function of output 0 instead of it, or None where there is none
    random            depends on the seed of the replica, so it is not folded even if its inputs are constant
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
    batch_innermost: tuple[int, ...] = ()
    takes_half: Callable[[Node], bool] = never
    domain: str = ""
    constant_inputs: Mapping[int, str] = field(default_factory=dict)
    constant_outputs: ConstantOutputs | None = None
    expand: Expand | None = None
    folded_outputs: Callable[[Node], Sequence[NDArray[Any]] | None] | None = None
    random: bool = False
    formula: Formula | None = None
    fused_store: StoringKernel | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.domain, self.type


def expanded_op(
    type: str, inputs: tuple[int, int | None], shape: ShapeRule, expand: Expand, cost: CostRule, **more: Any
) -> OpDef:
    """The entry of an op that is always replaced by others."""
    return OpDef(type, inputs, shape, replaced_before_run, cost, expand=expand, **more)


class Registry:
    """OpDefs by domain and type."""

    def __init__(self, families: Iterable[Iterable[OpDef]]) -> None:
        self.table: Mapping[tuple[str, str], OpDef] = {e.key: e for family in families for e in family}

    def __getitem__(self, op: Op) -> OpDef:
        try:
            return self.table[op.domain, op.type]
        except KeyError:
            public = {schema.name for schema in onnx.defs.get_all_schemas_with_history()}
            types = sorted(type for domain, type in self.table if domain == op.domain and (domain or type in public))
            raise EmulatorError(
                f"No op '{op.type}' in domain '{op.domain or 'ai.onnx'}'; there are {', '.join(types)}"
                f"{did_you_mean(op.type, types)}"
            ) from None

    def in_place(self, op: Op) -> list[tuple[str, int]]:
        """Each output that overwrites an input, and the index of that input; an op may lack the last outputs."""
        return list(zip(op.outputs, self[op].updates, strict=False))


class CallChain:
    """One call that runs all ``steps`` in order."""

    def __init__(self, steps: tuple[Call, ...]) -> None:
        self.steps = steps

    def __call__(self) -> None:
        for step in self.steps:
            step()


def call_chain(*steps: Call) -> CallChain:
    """One call that runs ``steps`` in order; chains among them are flattened."""
    return CallChain(
        tuple(call for step in steps for call in (step.steps if isinstance(step, CallChain) else (step,)))
    )
