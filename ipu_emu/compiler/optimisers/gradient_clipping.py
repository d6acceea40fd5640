"""Gradient clipping: limits the L2 norm of the gradients of groups of weights, after the reduction.

If all weights are shared by the same groups of replicas, as in an ensemble, each replica clips by its own norm. If
some are shared by more replicas than others, the norm is taken over all groups, or the copies of a weight would
diverge:

    norm^2 = sum over weights of the sum over its groups of |g|^2
"""

from __future__ import annotations

from collections.abc import Mapping

from ipu_emu.compiler.optimisers.update_rule import HyperParameter, UpdateRule, scalar
from ipu_emu.compiler.rewriting.op_writer import OpWriter
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, StepPhase
from ipu_emu.ops.communication.collective_ops import MEAN, MEAN_OPERATOR, OPERATOR

CLIP_SCALE = "clipNormGradientScaling___FLOAT"
_NORM, _FACTOR, _CLIPPED = "Norm___", "ClipFactor___", "Clipped___"


def clip_scale(rule: UpdateRule, *, divisor: int) -> HyperParameter:
    """Return the factor that undoes loss scaling, and divides reduced gradients that are not yet divided."""
    return HyperParameter(1 / (rule.loss_scaling.value * divisor), rule.loss_scaling.constant)


def clip_norms(
    graph: Graph, rule: UpdateRule, totals: Mapping[str, str], *, divisor: int, replicas: int
) -> dict[str, str]:
    """Append the clipping; return for each weight the id of the gradient that its update reads."""
    used = dict(totals)
    for number, clip in enumerate(rule.clips):
        weights = [weight for weight in (clip.weights or totals) if weight in totals]
        for weight in clip.weights:
            if weight not in graph.tensors:
                raise EmulatorError(
                    f"Clip norm settings name the weight '{weight}', but there is no such tensor in the model"
                )
        if not weights:
            continue
        scale = scalar(graph, CLIP_SCALE, clip_scale(rule, divisor=divisor))
        writer = OpWriter(graph, StepPhase.UPDATE)
        norms = tuple(f"{_NORM}{number}/{used[weight]}" for weight in weights)
        for weight, norm in zip(weights, norms, strict=True):
            writer.append("GradientNorm", (used[weight],), (norm,))
        groups = {weight: graph.tensor(weight).group or (1, replicas) for weight in weights}
        if len(set(groups.values())) > 1:
            norms = tuple(
                _of_all_groups(writer, norm, replicas // groups[weight][1])
                for weight, norm in zip(weights, norms, strict=True)
            )
        factor = f"{_FACTOR}{number}"
        writer.append("ClipFactor", (*norms, scale), (factor,), {"max_norm": clip.max_norm})
        for weight in weights:
            clipped = f"{_CLIPPED}{number}/{used[weight]}"
            writer.append("ClipGradient", (used[weight], factor), (clipped,))
            used[weight] = clipped
    return used


def _of_all_groups(writer: OpWriter, norm: str, groups: int) -> str:
    """Append the norm over ``groups`` of replicas, computed from that of one replica; return its id."""
    if groups == 1:
        return norm
    own = writer.value(writer.graph.tensor(norm))
    mean = (own * own).op(MEAN, **{OPERATOR: MEAN_OPERATOR})
    return mean.scaled(groups).op("Sqrt").tensor.id
