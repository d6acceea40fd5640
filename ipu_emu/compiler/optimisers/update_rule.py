"""UpdateRule: how an optimiser turns the reduced gradient of a weight into its new value, as ops of the update phase.

A rule defines, for each weight, the update op, its optimiser states, and its scalars. States are variables like
weights; scalars are tensors, so that the host can change those that are not constant between runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.compiler.rewriting.op_writer import OpWriter
from ipu_emu.compiler.rewriting.reserved_prefixes import ACCUM, UPDATED
from ipu_emu.graph import Graph, Role, StepPhase, Tensor
from ipu_emu.graph.dtype import FLOAT, DType


@dataclass(frozen=True)
class HyperParameter:
    """A value that is fixed when the graph is built, or that the host may change between runs."""

    value: float
    constant: bool = True


@dataclass(frozen=True)
class Clip:
    """A limit of the L2 norm of the gradients of ``weights`` (none named: of all weights)."""

    weights: tuple[str, ...]
    max_norm: float


@dataclass(frozen=True)
class OptimizerState:
    """An optimiser state of a weight: its id, element type and initial value, which may be a single number."""

    id: str
    dtype: DType
    first: NDArray[Any]


def zeros(shape: tuple[int, ...], dtype: DType) -> NDArray[Any]:
    """Return zeros as a read-only array that uses the memory of a single element."""
    return np.broadcast_to(np.zeros((), dtype.numpy), shape)


def ones(shape: tuple[int, ...], dtype: DType) -> NDArray[Any]:
    """As ``zeros``, with ones."""
    return np.broadcast_to(np.ones((), dtype.numpy), shape)


def scalar(graph: Graph, id: str, hyper: HyperParameter) -> str:
    """Add the scalar ``id`` unless the graph has it."""
    if id not in graph.tensors:
        role = Role.CONSTANT if hyper.constant else Role.SCALAR
        graph.add(Tensor(id, FLOAT, (), role), np.array(hyper.value, np.float32))
    return id


@dataclass(frozen=True)
class UpdateRule(ABC):
    """The compiler's view of an optimiser: the values of weights, those of ``specific`` ones, and what all share.

    ``accum_type`` is the element type of accumulators; None is that of the weight.
    """

    default: Any
    loss_scaling: HyperParameter
    specific: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    clips: tuple[Clip, ...] = field(default=(), kw_only=True)
    accum_type: DType | None = field(default=None, kw_only=True)

    def values(self, weight: str) -> Any:
        """Return the values that apply to a weight."""
        return self.specific.get(weight, self.default)

    @abstractmethod
    def kinds(self, weight: str, *, divisor: int) -> dict[str, HyperParameter]:
        """Return the scalars of a weight by kind, in the order in which the op takes them.

        The update divides the reduced gradient by ``divisor``: see ``CompileOptions.remaining_divisor``.
        """

    @abstractmethod
    def states(self, weight: Tensor, data: NDArray[Any]) -> list[OptimizerState]:
        """Return the states of a weight whose initial value is ``data``."""

    @abstractmethod
    def op(self, weight: str) -> tuple[str, dict[str, Any]]:
        """Return type and attributes of the op (w, states..., gradient, scalars...) -> (new w, new states...)."""

    def accumulator(self, weight: str) -> str:
        """Return the id of the sum over micro-batches."""
        return ACCUM + weight

    def loss_scaling_id(self, dtype: DType) -> str:
        """Return the id of the tensor that is the gradient of the loss."""
        return f"lossScaling_{dtype}"

    def scalars(self, weight: str, *, divisor: int) -> dict[str, HyperParameter]:
        """Return the values of the scalars of ``weight`` by id."""
        scope = f"specific___{weight}" if weight in self.specific else "default___FLOAT"
        return {f"{kind}___{scope}": value for kind, value in self.kinds(weight, divisor=divisor).items()}

    def append(self, graph: Graph, weight: Tensor, gradient: str, *, divisor: int) -> None:
        """Append states, scalars and the update op of ``weight``."""
        scalars = [scalar(graph, id, hyper) for id, hyper in self.scalars(weight.id, divisor=divisor).items()]
        states = self.states(weight, graph.data[weight.id])
        for state in states:
            # A model that was saved in the middle of training brings its states along.
            saved = graph.data.get(state.id)
            alike = state.first.shape == graph.data[weight.id].shape
            shape, group = (weight.shape, weight.group) if alike else ((), None)
            graph.tensors[state.id] = Tensor(state.id, state.dtype, shape, Role.STATE, group)
            graph.data[state.id] = state.first if saved is None else saved.astype(state.dtype.numpy)
        type, attributes = self.op(weight.id)
        ids = [weight.id, *(state.id for state in states)]
        OpWriter(graph, StepPhase.UPDATE).append(
            type, (*ids, gradient, *scalars), tuple(UPDATED + id for id in ids), attributes
        )
