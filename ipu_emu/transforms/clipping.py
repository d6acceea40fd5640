"""Clipping: limit the L2 norm of the gradients of groups of weights, after the reduction and before the update."""

from __future__ import annotations

from collections.abc import Mapping

from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Phase
from ipu_emu.transforms.optimizer import Hyper, Rule, scalar
from ipu_emu.transforms.writer import Writer

__all__ = ["CLIP_SCALE", "clip_norms", "clip_scale"]

CLIP_SCALE = "clipNormGradientScaling___FLOAT"
_CLIPPED = "Clipped___"


def clip_scale(rule: Rule, *, shares: int) -> Hyper:
    """What makes the reduced gradient the one that counts: it undoes loss scaling and the missing division."""
    return Hyper(1 / (rule.loss_scaling.value * shares), rule.loss_scaling.constant)


def clip_norms(graph: Graph, rule: Rule, totals: Mapping[str, str], *, shares: int) -> dict[str, str]:
    """Append the clipping; return weight to the id of the gradient that its update takes."""
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
        scale = scalar(graph, CLIP_SCALE, clip_scale(rule, shares=shares))
        outputs = tuple(f"{_CLIPPED}{number}/{used[weight]}" for weight in weights)
        inputs = (*(used[weight] for weight in weights), scale)
        Writer(graph, Phase.UPDATE).append("ClipNorm", inputs, outputs, {"max_norm": clip.max_norm})
        used |= dict(zip(weights, outputs, strict=True))
    return used
