"""Known ops: replaces ops that are not in the table by their definitions in ONNX; refuses other ops and attributes.

Attention(Q, K, V)     MatMul, Softmax, MatMul, ...        from the schema of the onnx package
GridSample(x, grid)    refused, together with all others that are in the model
Conv(shape=[3, 3])     refused: ONNX's attribute is kernel_shape
RandomNormal(seed=1)   named in a warning: random numbers follow the seed of the session
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

import onnx
import onnx.inliner

from ipu_emu.errors import RefusedError
from ipu_emu.onnx.proto_parts import nodes_of
from ipu_emu.onnx.write import PRODUCER
from ipu_emu.ops import TABLE
from ipu_emu.ops.control.unsupported import REASONS
from popdist_py.messages.suggestion import did_you_mean
from popdist_py.messages.user_warning import warn_user

_Key = tuple[str, str]
_ONNX = ("", "ai.onnx")


def with_known_ops(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """Return ``model`` with ops of the table only; raise RefusedError that names all others."""
    nodes = list(nodes_of(model.graph))
    unknown = {_key(node) for node in nodes} - set(TABLE.table)
    if unknown:
        model = _inlined(model, unknown, opset)
        nodes = list(nodes_of(model.graph))
    _check(nodes)
    return model


def _check(nodes: Iterable[onnx.NodeProto]) -> None:
    unknown: dict[_Key, list[str]] = {}
    for node in nodes:
        key = _key(node)
        if key not in TABLE.table or (key[0] == "" and key[1] in REASONS):
            unknown.setdefault(key, []).append(node.name or ", ".join(node.output))
    if not unknown:
        return
    lines = [
        f"  {domain or 'ai.onnx'}.{type}: {', '.join(names)}{_reason(domain, type)}{_meant(domain, type)}"
        for (domain, type), names in sorted(unknown.items())
    ]
    raise RefusedError(
        "The model has ops that are not supported, with the names of their nodes:\n"
        + "\n".join(lines)
        + "\nCompute them on the host, or export the model with other ops"
    )


def _reason(domain: str, type: str) -> str:
    return f" ({REASONS[type]})" if not domain and type in REASONS else ""


def _meant(domain: str, type: str) -> str:
    known = [other for place, other in TABLE.table if place == domain and (domain or other in _public())]
    return "" if (domain, type) in TABLE.table or type in _public() else did_you_mean(type, known)


@cache
def _public() -> frozenset[str]:
    """The names of ONNX's own ops."""
    return frozenset(schema.name for schema in onnx.defs.get_all_schemas_with_history() if not schema.domain)


def _inlined(model: onnx.ModelProto, unknown: set[_Key], opset: int) -> onnx.ModelProto:
    """Return ``model`` with ONNX's definitions of the unknown ops, as far as the onnx package has them."""
    wanted = [*unknown, *(("ai.onnx", type) for domain, type in unknown if not domain)]
    complete = onnx.ModelProto()
    complete.CopyFrom(model)
    for node in nodes_of(complete.graph):
        if _key(node) in unknown:
            _add_defaults(node, opset)
    try:
        flat: onnx.ModelProto = onnx.inliner.inline_selected_functions(complete, wanted, inline_schema_functions=True)
    except (RuntimeError, TypeError, ValueError):  # an older package, or a model that is not complete
        return model
    return flat


def _add_defaults(node: onnx.NodeProto, opset: int) -> None:
    """Give a node the attributes with defaults that it lacks: the functions refer to them."""
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, "" if node.domain in _ONNX else node.domain)
    except onnx.defs.SchemaError:
        return
    names = {attribute.name for attribute in node.attribute}
    node.attribute.extend(
        attribute.default_value
        for name, attribute in schema.attributes.items()
        if name not in names and attribute.default_value.type != onnx.AttributeProto.UNDEFINED
    )


def _key(node: onnx.NodeProto) -> _Key:
    return ("" if node.domain in _ONNX else node.domain), node.op_type


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
    unknown = [line for node, schema in nodes for line in _unknown_attributes(node, schema)]
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


def _unknown_attributes(node: onnx.NodeProto, schema: onnx.defs.OpSchema) -> Iterator[str]:
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
