"""Dropout: in training, every dropout of a model draws random numbers of its own."""

from __future__ import annotations

from dataclasses import replace

from ipu_emu.graph import Graph, Op
from ipu_emu.ops.dropout import SALT
from ipu_emu.ops.random import key_in, salt_of

__all__ = ["with_dropout"]


def with_dropout(model: Graph) -> Graph:
    """A copy of ``model`` in which dropouts act; without any, ``model`` itself."""
    if not any(_acts(op) for op in model.ops):
        return model
    graph = model.copy()
    key = key_in(graph)
    graph.ops = [_keyed(op, key) if _acts(op) else op for op in graph.ops]
    return graph


def _acts(op: Op) -> bool:
    return op.type == "Dropout" and not op.attributes.get("is_test", 0) and op.attributes.get("ratio", 0.5) > 0


def _keyed(op: Op, key: str) -> Op:
    attributes = {**op.attributes, SALT: salt_of(op)}
    return replace(op, type="DropoutWithKey", inputs=(op.inputs[0], key), attributes=attributes)
