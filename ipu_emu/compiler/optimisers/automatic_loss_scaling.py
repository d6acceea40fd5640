"""Automatic loss scaling: a factor on the loss scaling adapts to the magnitude of the gradients.

    backward    finalLossScale = lossScaling * lossScaleUpdateFactor
                Accum___autoLossScaleStats = numbers of small and large elements of the tracked tensors
                finalInverseLossScale_0 = scaledLearningRate0 / factor, where it is anchored
                (with a period, only in the batches after which the factor changes; 0 in the others)
                the statistics are summed over micro-batches and replicas, with the gradients
    update      gradients = UndoLossScale(gradients, factor);  ...;  factor = ChangeLossScale(factor, numbers)

The factor is a power of two, so that scaling by it is exact. It is a FLOAT, and so is the scale, which may be above
the range of FLOAT16. It halves when more than a fraction of the elements is above the edge, a fraction of the range
of FLOAT16, else it doubles; with a period P only after batches 0, P, 2 P ... Source: PopART 3.4 user guide.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np

from ipu_emu.compiler.optimisers.update_rule import HyperParameter
from ipu_emu.compiler.rewriting.op_writer import OpWriter
from ipu_emu.compiler.rewriting.reserved_prefixes import ACCUM, GRADIENT
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Op, Place, Role, StepPhase, Tensor
from ipu_emu.graph.dtype import FLOAT, FLOAT16

FACTOR, FINAL, STATISTICS = "lossScaleUpdateFactor", "finalLossScale", f"{ACCUM}autoLossScaleStats"
#: Scalars of weight updates that are divided by the loss scaling; and the ids of their quotients by the factor.
_INVERSE = (
    "scaledLearningRate0",
    "dampeningScaleFactor1",
    "dampeningScaleFactor2",
    "adamGradientScaling",
    "adaptiveGradientScaling",
)
_FINAL_INVERSE = "finalInverseLossScale_"
_SEEN = "Counter___lossScaleUpdate"
_TEXT = "[AutomaticLossScale transform] "
#: Ops of the backward pass whose results are views of an input.
_VIEWS = ("Identity", "Reshape", "ReshapeTo", "Transpose", "Slice", "Concat", "Expand")
#: Ops of the backward pass that are gradients of convolutions and matrix products.
_PRODUCTS = ("MatMul", "MatMulT", "Conv", "ConvDataGrad", "ConvTranspose", "ConvWeightGrad")


class Tracking(Enum):
    """Which FLOAT16 tensors of the backward pass are tracked."""

    ALL = "all but views, and but what is computed from a variable directly other than by such a product"
    PRODUCTS = "gradients of convolutions and matrix products"
    NAMED = "the gradients of named tensors"


@dataclass(frozen=True)
class LossScaler:
    """The settings of automatic loss scaling.

    An element is large from the fraction ``edge`` of the largest number of FLOAT16 on. The factor halves if more than
    the fraction ``most`` of all elements is large. It changes after every ``period``-th update. ``named`` are the
    tensors whose gradients are tracked, if ``tracking`` is NAMED.
    """

    edge: float = 0.125
    most: float = 1e-7
    period: int = 1
    tracking: Tracking = Tracking.ALL
    named: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise EmulatorError for settings that contradict each other or are out of range."""
        if self.named and self.tracking is not Tracking.NAMED:
            raise EmulatorError(
                f"{_TEXT}toTrackTensors has been set, but gradientTensorTrackingMethod has not been set to "
                "'GradientTensorTrackingMethod::GradientsOfUserSpecifiedTensors'."
            )
        for text, name, value in (
            (_TEXT, "binEdgeLocation", self.edge),
            ("", "thresholdUpperCountProportion", self.most),
        ):
            if not 0 <= value <= 1:
                raise EmulatorError(
                    f"{text}Out of range value for '{name}'. The current value is {value:g}, but it should be in the "
                    "range [0, 1]."
                )
        if self.period < 1:
            raise EmulatorError(f"{_TEXT}updatePeriod is {self.period}; use a number of weight updates from 1 on")

    def scaled_seed(self, graph: Graph, seed: Tensor, place: Place) -> Tensor:
        """Append the gradient of the loss, ``seed`` times the factor, at ``place``."""
        self._state(graph, FACTOR, graph.data.get(FACTOR, np.ones((), np.float32)))
        return OpWriter(graph, StepPhase.BACKWARD, place).append("Mul", (seed.id, FACTOR), (FINAL,))[0]

    def _state(self, graph: Graph, id: str, value: np.ndarray) -> None:
        graph.tensors[id] = Tensor(id, FLOAT, value.shape, Role.STATE)
        graph.data[id] = value

    def count(self, graph: Graph, totals: Collection[str], name: str) -> str:
        """Append the numbers of small and large elements of a micro-batch as the tensor ``name``.

        Each IPU counts those of its gradients in each stage. ``totals`` are the gradients that updates read.
        """
        every = name
        if self.period > 1:
            self._state(graph, _SEEN, np.zeros((), np.float32))
            every = graph.unused("lossScaleStatistics/every")
        by_place: dict[Place, list[str]] = {}
        for id, op in self._tracked(graph, totals):
            by_place.setdefault(op.place, []).append(id)
        if not by_place:
            raise EmulatorError(f"{_TEXT}No tracked gradient tensors of type fp16 were found.")
        writer, sums = OpWriter(graph, StepPhase.BACKWARD), list[str]()
        last = min(by_place)
        for place in sorted(by_place, reverse=True):
            writer.place = place
            own = every if len(by_place) == 1 else graph.unused(f"lossScaleStatistics/{place.stage}/{place.ipu}")
            writer.append("CountLargeGradients", tuple(by_place[place]), (own,), {"edge": self.edge})
            sums.append(own)
        writer.place, total = last, sums[0]
        for index, own in enumerate(sums[1:], 2):
            more = every if index == len(sums) else graph.unused("lossScaleStatistics/sum")
            total = writer.append("Add", (total, own), (more,))[0].id
        if self.period > 1:  # 0 in batches whose numbers are not needed
            zero, due = graph.constant(0.0, graph.tensor(_SEEN)).id, graph.unused("lossScaleStatistics/due")
            writer.place = graph.producers()[FINAL].place  # where the factor and its counter are
            writer.append("Equal", (_SEEN, zero), (due,))
            writer.place = last
            total = writer.append("Where", (due, total, zero), (name,))[0].id
        return total

    def _tracked(self, graph: Graph, totals: Collection[str]) -> Iterator[tuple[str, Op]]:
        """Yield the tracked tensors with the ops that make them."""
        if self.tracking is Tracking.NAMED:
            yield from self._named(graph)
            return
        read = {id for op in graph.ops for id in op.reads}.union(totals)
        variables = {FINAL, *(tensor.id for tensor in graph.with_role(Role.WEIGHT, Role.STATE, Role.SCALAR))}
        for op in graph.ops:
            if self.tracking is Tracking.PRODUCTS:
                chosen = op.type in _PRODUCTS
            else:
                chosen = op.type in _PRODUCTS or (op.type not in _VIEWS and variables.isdisjoint(op.reads))
            for id in op.outputs if op.phase is StepPhase.BACKWARD and chosen else ():
                if id in read and graph.tensor(id).dtype is FLOAT16:
                    yield id, op

    def _named(self, graph: Graph) -> Iterator[tuple[str, Op]]:
        producers = graph.producers()
        for id in self.named:
            gradient = GRADIENT + id
            if gradient not in producers:
                raise EmulatorError(
                    f"{_TEXT}The to-track tensor '{id}' has no gradient; name tensors of the model that the loss "
                    "depends on"
                )
            dtype = graph.tensor(gradient).dtype
            if dtype is not FLOAT16:
                raise EmulatorError(f"{_TEXT}Unsupported data type {dtype} for to-track tensor '{id}'")
            yield gradient, producers[gradient]

    def undo(self, graph: Graph, totals: Mapping[str, str]) -> dict[str, str]:
        """Append the division of the reduced gradients by the factor; return the new id for each weight."""
        writer = OpWriter(graph, StepPhase.UPDATE)
        for id in totals.values():
            writer.append("UndoLossScale", (id, FACTOR), (f"Unscaled___{id}",))
        return {weight: f"Unscaled___{id}" for weight, id in totals.items()}

    def invert(self, graph: Graph) -> None:
        """Append the scalars of updates that contain the inverse of the scale, divided by the factor, for anchors.

        They belong to the backward pass, so that an anchor has their value in every micro-batch of a batch.
        """
        writer = OpWriter(graph, StepPhase.BACKWARD, graph.producers()[FINAL].place)
        inverse = [t.id for t in graph.with_role(Role.SCALAR) if t.id.partition("___")[0] in _INVERSE]
        for index, id in enumerate(inverse):
            writer.append("Div", (id, FACTOR), (f"{_FINAL_INVERSE}{index}",))

    def change(self, graph: Graph, numbers: str) -> None:
        """Append the change of the factor."""
        writer, attributes = OpWriter(graph, StepPhase.UPDATE), {"most": self.most, "period": self.period}
        inputs, outputs = (FACTOR, numbers), (f"Updated{FACTOR}",)
        if self.period == 1:
            writer.append("ChangeLossScale", inputs, outputs, attributes)
        else:
            writer.append(
                "ChangeLossScaleAtTimes", (FACTOR, _SEEN, numbers), (*outputs, f"Updated{_SEEN}"), attributes
            )


def check_loss_scaling(loss_scaling: HyperParameter) -> None:
    """Raise EmulatorError if the loss scaling is constant."""
    if loss_scaling.constant:
        raise EmulatorError(
            f"{_TEXT}The optimizer must have non-const loss scaling; give lossScaling as (value, False)"
        )
