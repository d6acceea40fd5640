"""Replication: what of a model depends on the number of replicas."""

from __future__ import annotations

import onnx
from onnx import helper

from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.collectives import REPLICAS, SCATTER

__all__ = ["tell_replicas"]


def tell_replicas(model: onnx.ModelProto, replicas: int) -> onnx.ModelProto:
    """``model`` with the number of replicas as an attribute of every reduce-scatter, whose shard depends on it."""
    if replicas == 1 or not any(_is_scatter(node) for node in model.graph.node):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for node in copy.graph.node:
        if _is_scatter(node):
            node.attribute.append(helper.make_attribute(REPLICAS, replicas))
    return copy


def _is_scatter(node: onnx.NodeProto) -> bool:
    return bool(node.domain == GRAPHCORE and node.op_type == SCATTER)
