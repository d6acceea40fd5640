"""Automatic loss scaling: a factor on the loss scaling adapts to the magnitude of the gradients.

    backward    finalLossScale = lossScaling * lossScaleUpdateFactor;   counts = CountLargeGradients(gradients)
                counts are summed over micro-batches and replicas, with the gradients
    update      gradients = UndoLossScale(gradients, factor);  ...;  factor = ChangeLossScale(factor, counts)

The factor is a power of two, so that scaling by it is exact. It halves when more than a fraction of all
elements is above the edge, a fraction of the range of their type; otherwise it doubles. Source: PopART 3.4 user
guide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ipu_emu.compiler.optimisers.update_rule import HyperParameter
from ipu_emu.compiler.rewriting.op_writer import OpWriter
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Phase, Place, Role, Tensor
from ipu_emu.graph.dtype import FLOAT

__all__ = ["FACTOR", "FINAL", "LossScaler", "check_loss_scaling"]

FACTOR, FINAL = "lossScaleUpdateFactor", "finalLossScale"
_SEEN, _COUNTS = "Counter___lossScaleUpdate", "lossScaleStatistics"


@dataclass(frozen=True)
class LossScaler:
    """The settings of automatic loss scaling.

    A gradient is large above the fraction ``edge`` of the largest number of its type. The factor halves if more than
    the fraction ``most`` of all elements is large. It changes every ``period`` updates.
    """

    edge: float = 0.125
    most: float = 1e-7
    period: int = 1

    def scaled_seed(self, graph: Graph, seed: Tensor, place: Place) -> Tensor:
        """Append the gradient of the loss, ``seed`` times the factor, at ``place``."""
        for id, first in ((FACTOR, np.ones((), np.float32)), (_SEEN, np.zeros(3, np.float32))):
            saved = graph.data.get(id, first)
            graph.tensors[id] = Tensor(id, FLOAT, first.shape, Role.STATE)
            graph.data[id] = saved
        writer = OpWriter(graph, Phase.BACKWARD, place)
        factor = FACTOR
        if seed.dtype is not FLOAT:
            factor = writer.append("Cast", (FACTOR,), (f"{FACTOR}_{seed.dtype}",), {"to": seed.dtype.onnx})[0].id
        return writer.append("Mul", (seed.id, factor), (FINAL,))[0]

    def count(self, graph: Graph, parts: Sequence[str]) -> str:
        """Append the count of large elements of a micro-batch, where its last gradient is made; return its id."""
        producers = graph.producers()
        place = min(producers[part].place for part in parts)
        made = OpWriter(graph, Phase.BACKWARD, place).append(
            "CountLargeGradients", tuple(parts), (_COUNTS,), {"edge": self.edge}
        )
        return made[0].id

    def undo(self, graph: Graph, totals: Mapping[str, str]) -> dict[str, str]:
        """Append the division of the reduced gradients by the factor; return the new id for each weight."""
        writer = OpWriter(graph, Phase.UPDATE)
        for id in totals.values():
            writer.append("UndoLossScale", (id, FACTOR), (f"Unscaled___{id}",))
        return {weight: f"Unscaled___{id}" for weight, id in totals.items()}

    def change(self, graph: Graph, counts: str, seed: Tensor) -> None:
        """Append the change of the factor."""
        outputs = (f"Updated{FACTOR}", f"Updated{_SEEN}")
        attributes = {"most": self.most, "period": self.period}
        OpWriter(graph, Phase.UPDATE).append("ChangeLossScale", (FACTOR, _SEEN, counts, seed.id), outputs, attributes)


def check_loss_scaling(loss_scaling: HyperParameter) -> None:
    """Raise EmulatorError if the loss scaling is constant."""
    if loss_scaling.constant:
        raise EmulatorError(
            "[AutomaticLossScale transform] The optimizer must have non-const loss scaling; give lossScaling as "
            "(value, False)"
        )
