"""Dropout keys: in training, every dropout op draws its own random numbers.

Dropout          DropoutWithKey
ShapedDropout    ones of its shape -> DropoutWithKey -> broadcast and multiplied with the data
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ipu_emu.graph import Graph, Op, Role, Tensor
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.random.counter_rng import STREAM_ID, key_in, stream_id_of

__all__ = ["with_dropout"]


def with_dropout(model: Graph, *, training: bool = True) -> Graph:
    """Return a copy of ``model`` (expanded) in which dropouts are active; without any, ``model`` itself."""
    acting = {op.outputs[0] for op in model.ops if _acts(op, training)}
    if not acting:
        return model
    graph = model.copy()
    key = key_in(graph)
    graph.ops = [one for op in graph.ops for one in (_keyed(graph, op, key) if op.outputs[0] in acting else [op])]
    return graph


def _acts(op: Op, training: bool) -> bool:
    """Whether a dropout is active: by an input from opset 12 on, by an attribute (default: active) before."""
    if op.type not in ("Dropout", "ShapedDropout") or op.attributes.get("ratio", 0.5) == 0:
        return False
    trains = training and (op.domain == GRAPHCORE or op.version < 12)
    return bool(op.attributes.get("training_mode", trains)) and not op.attributes.get("is_test", 0)


def _keyed(graph: Graph, op: Op, key: str) -> Iterator[Op]:
    attributes = {**op.attributes, STREAM_ID: stream_id_of(op)}
    if op.type == "Dropout":
        yield replace(op, type="DropoutWithKey", inputs=(op.inputs[0], key), attributes=attributes)
        return
    (x, y), kind = (op.inputs[0], op.outputs[0]), graph.tensor(op.inputs[0]).dtype
    shape = tuple(op.attributes["shape"])
    ones, mask = (
        graph.add(Tensor(f"{y}/{name}", kind, shape, role), data)
        for name, role, data in (
            ("ones", Role.CONSTANT, np.ones(shape, kind.numpy)),
            ("mask", Role.COMPUTED, None),
        )
    )
    drop = replace(op, type="DropoutWithKey", domain="", inputs=(ones.id, key), outputs=(mask.id,))
    yield replace(drop, attributes=attributes)
    placement = {name: value for name, value in op.attributes.items() if name.startswith("__")}
    yield replace(op, type="Mul", domain="", inputs=(x, mask.id), attributes=placement)
