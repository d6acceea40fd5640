"""Transposed products: matrix products of transposed matrices, which read the matrices without transposing them.

    MatMul(x, Transpose(w))  ->  MatMulT(x, w, transB=1)

Exporters write the weights of a linear layer like this. A transposition, and that of its gradient, would move the
whole matrix in every step.
"""

from __future__ import annotations

from dataclasses import replace

from ipu_emu.graph import Graph, Op, Role

__all__ = ["with_transposed_products"]

#: Annotates a product that the front end reports in parts, as the model had it.
_SERIALISED = "__serialize_matmul"


def with_transposed_products(model: Graph) -> Graph:
    """Return ``model`` with products of transposed matrices as one op; unused transpositions are removed."""
    turned = {op.outputs[0]: op for op in model.ops if _exchanges_matrix_axes(model, op)}
    if not turned:
        return model
    graph = model.copy()
    graph.ops = [_product(op, turned) for op in model.ops]
    return graph


def _exchanges_matrix_axes(model: Graph, op: Op) -> bool:
    if op.type != "Transpose" or op.domain or model.tensor(op.outputs[0]).role is Role.CONSTANT:
        return False
    rank = model.tensor(op.inputs[0]).rank
    order = list(op.attributes.get("perm", [])) or list(reversed(range(rank)))
    return rank > 1 and order == [*range(rank - 2), rank - 1, rank - 2]


def _product(op: Op, turned: dict[str, Op]) -> Op:
    if op.type != "MatMul" or op.domain or _SERIALISED in op.attributes or not turned.keys() & set(op.inputs):
        return op
    attributes, inputs = dict(op.attributes), list(op.inputs)
    for index, name in enumerate(("transA", "transB")):
        transposition = turned.get(inputs[index])
        if transposition is not None and transposition.guard in ("", op.guard):
            inputs[index] = transposition.inputs[0]
            attributes[name] = 1
    return replace(op, type="MatMulT", inputs=tuple(inputs), attributes=attributes)
