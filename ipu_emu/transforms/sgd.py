"""SGD: the update ops of stochastic gradient descent, and the scalars that drive them.

Source: PopART 3.4 user guide and ``willow/src/optimizer.cpp``. With g the reduced gradient as the engine has it
(times the loss scaling ls, and A * R times too large under Mean with Post division):

    plain      w = decay w - rate g                       constant momentum 0: no state
    separate   v = m v + s g + k w;  w = w - r v          states Accl1___w, and Accum___w with accumulation
    combined   v = a + s g;          w = w - r v;  a = m v + k w       state Accl___w

    rate = lr (1 - dm) / (ls A R)     decay = 1 - lr (1 - dm) wd
    r = lr / vs    s = (1 - dm) vs / (ls A R)    k = (1 - dm) vs wd
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np

from ipu_emu.graph import Graph, Phase, Role, Tensor
from ipu_emu.graph.dtype import FLOAT, DType
from ipu_emu.transforms.ids import ACCL, ACCL1, UPDATED
from ipu_emu.transforms.writer import Writer

__all__ = ["Hyper", "Mode", "Sgd", "SgdValues"]


class Mode(Enum):
    """Where the momentum lives; the names are PopART's."""

    PLAIN = "SGD0"
    COMBINED = "SGD1"
    SEPARATE = "SGD2"


@dataclass(frozen=True)
class Hyper:
    """A value that is fixed when the graph is built, or that the host may change between runs."""

    value: float
    constant: bool = True


@dataclass(frozen=True)
class SgdValues:
    """The values that apply to one weight."""

    learning_rate: Hyper
    weight_decay: Hyper
    momentum: Hyper
    dampening: Hyper
    velocity_scaling: Hyper
    nesterov: Hyper


@dataclass(frozen=True)
class Sgd:
    """Stochastic gradient descent for all weights of a graph."""

    default: SgdValues
    loss_scaling: Hyper
    with_momentum: Mode = Mode.COMBINED
    specific: Mapping[str, SgdValues] = field(default_factory=dict)

    def values(self, weight: str) -> SgdValues:
        return self.specific.get(weight, self.default)

    def mode(self, weight: str) -> Mode:
        """A weight whose momentum is always 0 needs no state."""
        return Mode.PLAIN if self.values(weight).momentum == Hyper(0.0) else self.with_momentum

    def loss_scaling_id(self, dtype: DType) -> str:
        """Id of the tensor that is the gradient of the loss."""
        return f"lossScaling_{dtype}"

    def scalar_ids(self, weight: str) -> dict[str, str]:
        """Kind of scalar to the id of its tensor, in the order in which the update op takes them."""
        scope = f"specific___{weight}" if weight in self.specific else "default___FLOAT"
        return {kind: f"{kind}___{scope}" for kind in _KINDS[self.mode(weight)]}

    def scalars(self, weight: str, *, shares: int) -> dict[str, Hyper]:
        """Id to value of the scalars of ``weight``; ``shares`` is A * R for Mean with Post division, else 1."""
        return dict(zip(self.scalar_ids(weight).values(), self._compound(weight, shares), strict=True))

    def _compound(self, weight: str, shares: int) -> list[Hyper]:
        v = self.values(weight)
        lr, wd, vs = v.learning_rate.value, v.weight_decay.value, v.velocity_scaling.value
        undamped, scale = 1 - v.dampening.value, self.loss_scaling.value * shares
        if self.mode(weight) is Mode.PLAIN:
            return [
                _hyper(lr * undamped / scale, v.learning_rate, v.dampening, self.loss_scaling),
                _hyper(1 - lr * undamped * wd, v.learning_rate, v.dampening, v.weight_decay),
            ]
        return [
            _hyper(lr / vs, v.learning_rate, v.velocity_scaling),
            v.momentum,
            _hyper(undamped * vs / scale, v.dampening, v.velocity_scaling, self.loss_scaling),
            _hyper(undamped * vs * wd, v.dampening, v.velocity_scaling, v.weight_decay),
            v.nesterov,
        ]

    def states(self, weight: str) -> list[str]:
        """Ids of the optimiser states of ``weight``."""
        return {Mode.PLAIN: [], Mode.COMBINED: [ACCL + weight], Mode.SEPARATE: [ACCL1 + weight]}[self.mode(weight)]

    def append(self, graph: Graph, weight: Tensor, gradient: str, *, shares: int) -> None:
        """Append states, scalars and the update op of ``weight``."""
        scalars = self.scalars(weight.id, shares=shares)
        for id, hyper in scalars.items():
            if id not in graph.tensors:
                role = Role.CONSTANT if hyper.constant else Role.SCALAR
                graph.add(Tensor(id, FLOAT, (), role), np.array(hyper.value, np.float32))
        for id in self.states(weight.id):
            # A model that was saved in the middle of training brings its states along.
            saved = graph.data.get(id)
            graph.tensors[id] = replace(weight, id=id, role=Role.STATE)
            graph.data[id] = self.first_state(graph, weight) if saved is None else saved
        states = self.states(weight.id)
        Writer(graph, Phase.UPDATE).append(
            _OPS[self.mode(weight.id)],
            (weight.id, *states, gradient, *scalars),
            (UPDATED + weight.id, *(UPDATED + id for id in states)),
        )

    def first_state(self, graph: Graph, weight: Tensor) -> np.ndarray:
        """What a state starts from: 0, or for the combined form what weight decay adds in the first step."""
        data = graph.data[weight.id]
        if self.mode(weight.id) is not Mode.COMBINED:
            return np.zeros_like(data)
        decay = self._compound(weight.id, 1)[3].value
        return (data.astype(np.float32) * np.float32(decay)).astype(data.dtype)


def _hyper(value: float, *sources: Hyper) -> Hyper:
    """A value computed from others is constant if all of them are."""
    return Hyper(value, all(source.constant for source in sources))


_OPS = {Mode.PLAIN: "SgdPlain", Mode.COMBINED: "SgdCombined", Mode.SEPARATE: "SgdSeparate"}

#: Scalars of the update op in the order of its inputs.
_KINDS = {
    Mode.PLAIN: ("scaledLearningRate0", "weightDecayScaleFactor0"),
    Mode.COMBINED: (
        "scaledLearningRate1",
        "scaledMomentum1",
        "dampeningScaleFactor1",
        "weightDecayScaleFactor1",
        "nesterov1",
    ),
    Mode.SEPARATE: (
        "scaledLearningRate2",
        "scaledMomentum2",
        "dampeningScaleFactor2",
        "weightDecayScaleFactor2",
        "nesterov2",
    ),
}
