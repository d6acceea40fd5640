"""Channel groups: the channels that form a group of a group normalisation, if the options choose them."""

from __future__ import annotations

from dataclasses import replace

from ipu_emu.graph import Graph, Op
from ipu_emu.ops.normalisation.group_norm import STRIDED

__all__ = ["with_strided_groups"]


def with_strided_groups(model: Graph) -> Graph:
    """A copy of ``model`` whose group normalisations have strided groups: channel c belongs to group c mod G."""
    graph = model.copy()
    graph.ops = [_strided(op) for op in model.ops]
    return graph


def _strided(op: Op) -> Op:
    bodies = {key: with_strided_groups(value) for key, value in op.attributes.items() if isinstance(value, Graph)}
    strided = {STRIDED: 1} if op.type == "GroupNormalization" and op.domain else {}
    return replace(op, attributes={**op.attributes, **bodies, **strided}) if bodies or strided else op
