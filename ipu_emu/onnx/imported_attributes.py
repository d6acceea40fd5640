"""Imported attributes: refuses attributes of nodes that ONNX does not define, and names those without effect.

Conv(shape=[3, 3])              refused: ONNX's attribute is kernel_shape
RandomNormal(seed=1.0)          named in a warning: random numbers follow the seed of the session
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx

from ipu_emu.errors import RefusedError
from ipu_emu.onnx.proto_parts import nodes_of
from ipu_emu.onnx.write import PRODUCER
from popdist_py.messages.suggestion import did_you_mean
from popdist_py.messages.user_warning import warn_user

#: Attributes without effect, by the reason.
_WITHOUT_EFFECT = {
    "seed": "random numbers follow the seed of the session; use setRandomSeed",
    "stash_type": "the statistics of normalisations are computed in FLOAT",
}


def check_attributes(model: onnx.ModelProto, opset: int) -> None:
    """Raise RefusedError for unknown attributes of ONNX's ops in a model of another program."""
    if model.producer_name == PRODUCER:
        return
    nodes = [(node, schema) for node in nodes_of(model.graph) if (schema := _schema(node, opset)) is not None]
    unknown = [line for node, schema in nodes for line in _unknown(node, schema)]
    if unknown:
        lines = "\n  ".join(unknown)
        raise RefusedError(f"The model has attributes that ONNX does not define:\n  {lines}\nRemove them")
    for type, name in sorted({pair for node, schema in nodes for pair in _without_effect(node, schema)}):
        warn_user(f"The attribute {name} of {type} has no effect on emulated IPUs: {_WITHOUT_EFFECT[name]}")


def _schema(node: onnx.NodeProto, opset: int) -> onnx.defs.OpSchema | None:
    """The schema of an op of ONNX; None for others."""
    if node.domain not in ("", "ai.onnx") or not onnx.defs.has(node.op_type, opset):
        return None
    return onnx.defs.get_schema(node.op_type, opset)


def _unknown(node: onnx.NodeProto, schema: onnx.defs.OpSchema) -> Iterator[str]:
    """Those of later opsets are known too; two underscores in front mark annotations, as the Builder writes them."""
    known = schema.attributes.keys() | onnx.defs.get_schema(node.op_type).attributes
    for attribute in node.attribute:
        if attribute.name not in known and not attribute.name.startswith("__"):
            meant = did_you_mean(attribute.name, known)
            yield f"{node.op_type} {node.name or ', '.join(node.output)}: {attribute.name}{meant}"


def _without_effect(node: onnx.NodeProto, schema: onnx.defs.OpSchema) -> Iterable[tuple[str, str]]:
    for attribute in node.attribute:
        if attribute.name in _WITHOUT_EFFECT and node.op_type != "Range":
            default = schema.attributes[attribute.name].default_value
            if not default.type or attribute.i != default.i or attribute.f != default.f:
                yield node.op_type, attribute.name
