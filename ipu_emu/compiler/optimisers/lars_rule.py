"""LARS rule: momentum whose gradients are scaled by the norms of each layer.

("Large Batch Training of Convolutional Networks", You, Gitman and Ginsburg 2017)

    ratio = c |w| / (|g| + d |w|), 1 where a norm is 0        h = ratio (g + d w)        h is the momentum's gradient

Weights of one axis, which are biases and the scales of norms, use the unscaled gradient, without decay. g may be
multiplied by the loss scaling and not yet divided by A R, as in ``sgd_rule``; h is then too.
"""

from __future__ import annotations

from dataclasses import dataclass

from ipu_emu.compiler.optimisers.sgd_rule import SgdRule
from ipu_emu.compiler.rewriting.op_writer import OpWriter
from ipu_emu.graph import Graph, StepPhase, Tensor
from ipu_emu.graph.dtype import FLOAT
from ipu_emu.ops import Value


@dataclass(frozen=True)
class LarsRule(SgdRule):
    """``coefficient`` is c, the trust coefficient of the paper; ``decay`` is d."""

    coefficient: float = 0.001
    decay: float = 5e-5

    def append(self, graph: Graph, weight: Tensor, gradient: str, *, divisor: int) -> None:
        """Append the scaled gradient and its momentum update."""
        if weight.rank > 1:
            gradient = self._scaled(graph, weight, gradient, self.loss_scaling.value * divisor)
        super().append(graph, weight, gradient, divisor=divisor)

    def _scaled(self, graph: Graph, weight: Tensor, gradient: str, scale: float) -> str:
        writer = OpWriter(graph, StepPhase.UPDATE)
        w, g = (_in_float(writer.value(graph.tensor(id))) for id in (weight.id, gradient))
        of_weight, of_gradient = (_in_float(operand.op("GradientNorm")) for operand in (w, g))
        of_sum = of_gradient + of_weight.scaled(self.decay * scale)
        zero, unit = of_sum.like(0), of_sum.like(1)
        moves = (of_weight * of_gradient).op("Greater", zero)
        ratio = of_weight.scaled(self.coefficient * scale) / moves.op("Where", of_sum, unit)
        changed = moves.op("Where", ratio, unit) * (g + w.scaled(self.decay * scale))
        return changed.op("Cast", to=graph.tensor(gradient).dtype.onnx).tensor.id


def _in_float(value: Value) -> Value:
    return value if value.tensor.dtype is FLOAT else value.op("Cast", to=FLOAT.onnx)
