"""Recognised ops: groups of ops as exporters write them become one op with its own gradient, such as GELU.

    x / sqrt(2) -> Erf -> + 1 -> times x -> times 0.5                       ->  GeluErf(x)
    x^3 times 0.044715, + x, times sqrt(2 / pi) -> Tanh -> + 1 -> ...       ->  Gelu(x)

The ops may come in any order, and constants may be split or merged. Every tensor is read as a polynomial in x and in
t, the result of Erf or Tanh; an op whose polynomial is (x + x t) / 2 is a GELU. The gradient then reads only x,
while those of the elementary ops read the result of each of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import isclose, pi, sqrt

from ipu_emu.graph import Graph, Op, Role
from ipu_emu.graph.dtype import FLOAT, FLOAT16
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops import node_of

#: (power of x, power of t) -> coefficient.
_Polynomial = Mapping[tuple[int, int], float]

_X: _Polynomial = {(1, 0): 1.0}
_T: _Polynomial = {(0, 1): 1.0}
_GELU: _Polynomial = {(1, 0): 0.5, (1, 1): 0.5}
_SCALE = sqrt(2 / pi)
#: By the type of the op that makes t: its argument, and the op for the whole.
_FORMS: Mapping[str, tuple[_Polynomial, str]] = {
    "Erf": ({(1, 0): sqrt(0.5)}, "GeluErf"),
    "Tanh": ({(1, 0): _SCALE, (3, 0): 0.044715 * _SCALE}, "Gelu"),
}
#: The most ops before and after t; the longest known form has six before and four after.
_FAR = 8
#: Relative distance of coefficients that were rounded when the model was written.
_CLOSE = {FLOAT: 1e-5, FLOAT16: 4e-3}


def with_gelu(model: Graph) -> Graph:
    """Return ``model`` with the last op of each GELU replaced by GELU; its other ops are removed if unused."""
    if not any(op.type in _FORMS for op in model.ops):
        return model
    graph = model.copy()
    replacements = _Search(graph).replacements()
    graph.ops = [replacements.get(op.outputs[0], op) for op in graph.ops]
    return graph


@dataclass
class _Reading:
    """Tensors as polynomials, given those of x and of t."""

    graph: Graph
    producers: Mapping[str, Op]
    known: dict[str, _Polynomial | None]

    def of(self, id: str, depth: int = 0) -> _Polynomial | None:
        if id not in self.known:
            self.known[id] = self.computed(id, depth)
        return self.known[id]

    def computed(self, id: str, depth: int) -> _Polynomial | None:
        tensor = self.graph.tensor(id)
        if tensor.role is Role.CONSTANT:
            return {(0, 0): float(self.graph.data[id].reshape(()))} if tensor.nelms == 1 else None
        op = self.producers.get(id)
        if op is None or depth > _FAR or "axis" in op.attributes:
            return None
        operands = [self.of(input, depth + 1) for input in op.inputs]
        polynomials = [operand for operand in operands if operand is not None]
        return _result(op, polynomials) if len(polynomials) == len(operands) else None


def _result(op: Op, operands: list[_Polynomial]) -> _Polynomial | None:
    a, b = operands[0], operands[-1]
    constant = b[0, 0] if set(b) == {(0, 0)} else None
    if op.type == "Add":
        return _sum(a, b)
    if op.type == "Mul":
        return _product(a, b)
    if op.type == "Scale":
        return _product(a, {(0, 0): float(op.attributes.get("scale", 1.0))})
    if op.type == "Identity":
        return a
    if op.type == "Div" and constant:
        return _product(a, {(0, 0): 1 / constant})
    if op.type == "Pow" and constant in (1.0, 2.0, 3.0):
        power = a
        for _ in range(int(constant) - 1):
            power = _product(power, a)
        return power
    return None


def _sum(a: _Polynomial, b: _Polynomial) -> _Polynomial:
    return {powers: a.get(powers, 0.0) + b.get(powers, 0.0) for powers in {**a, **b}}


def _product(a: _Polynomial, b: _Polynomial) -> _Polynomial:
    product: dict[tuple[int, int], float] = {}
    for (i, j), factor in a.items():
        for (k, m), other in b.items():
            product[i + k, j + m] = product.get((i + k, j + m), 0.0) + factor * other
    return product


def _equal(a: _Polynomial | None, b: _Polynomial, close: float) -> bool:
    return a is not None and set(a) == set(b) and all(isclose(a[key], b[key], rel_tol=close) for key in b)


class _Search:
    def __init__(self, graph: Graph) -> None:
        self.graph, self.producers = graph, graph.producers()
        self.users: dict[str, list[Op]] = {}
        for op in graph.ops:
            for id in op.inputs:
                self.users.setdefault(id, []).append(op)

    def replacements(self) -> dict[str, Op]:
        """The GELU that replaces the op which makes each output."""
        gelus = (self.gelu(op) for op in self.graph.ops if op.type in _FORMS and not op.domain)
        return {op.outputs[0]: op for op in gelus if op is not None}

    def gelu(self, inner: Op) -> Op | None:
        argument, type = _FORMS[inner.type]
        t = inner.outputs[0]
        tensor = self.graph.tensor(t)
        if tensor.dtype not in _CLOSE:
            return None
        close = _CLOSE[tensor.dtype]
        for x in self.before(inner.inputs[0]):
            if not _equal(self.reading({x: _X}).of(inner.inputs[0]), argument, close):
                continue
            reading = self.reading({x: _X, t: _T})
            for last in self.after(t):
                same = last.guard == inner.guard and self.graph.tensor(last.outputs[0]).shape == tensor.shape
                if same and _equal(reading.of(last.outputs[0]), _GELU, close):
                    return replace(last, type=type, domain=GRAPHCORE, inputs=(x,), attributes=last.annotations)
        return None

    def reading(self, polynomials: dict[str, _Polynomial]) -> _Reading:
        return _Reading(self.graph, self.producers, dict(polynomials))

    def before(self, id: str) -> Iterator[str]:
        """The tensors of the shape of ``id`` that it is computed from, nearest first."""
        shape, ids = self.graph.tensor(id).shape, [id]
        for _ in range(_FAR):
            ids = [
                input
                for output in ids
                if output in self.producers
                for input in self.producers[output].inputs
                if input and self.graph.tensor(input).shape == shape
            ]
            ids = list(dict.fromkeys(ids))
            yield from (id for id in ids if self.graph.tensor(id).role is not Role.CONSTANT)

    def after(self, id: str) -> Iterator[Op]:
        """The ops that are computed from ``id``, nearest first."""
        ids = [id]
        for _ in range(_FAR // 2):
            ops = [op for id in ids for op in self.users.get(id, []) if len(op.outputs) == 1]
            yield from ops
            ids = list(dict.fromkeys(op.outputs[0] for op in ops))


def fuse_softmax_nll(graph: Graph) -> None:
    """Replace the gradients of a softmax followed by a negative log likelihood by their closed form.

    SoftmaxGrad(NllGrad(g, p, labels), p)  ->  SoftmaxNllGrad(g, p, labels)  =  (p - onehot(labels)) g
    """
    producers = graph.producers()
    graph.ops = [_fused(graph, op, producers) for op in graph.ops]


def _fused(graph: Graph, op: Op, producers: dict[str, Op]) -> Op:
    inner = producers.get(op.inputs[0]) if op.type == "SoftmaxGrad" else None
    if inner is None or inner.type != "NllGrad" or inner.inputs[1] != op.inputs[1]:
        return op
    probabilities = node_of(graph, op).input(1)
    last_axis = op.attributes["axis"] in (-1, probabilities.rank - 1)
    if not last_axis or inner.attributes.get("inputIsLogProbability"):
        return op
    return replace(op, type="SoftmaxNllGrad", inputs=inner.inputs, attributes=inner.attributes)


#: Annotates a product that the front end reports in parts, as the model had it.
_SERIALISED = "__serialize_matmul"


def with_transposed_products(model: Graph) -> Graph:
    """Return ``model`` with products of transposed matrices as one op; unused transpositions are removed.

        MatMul(x, Transpose(w))  ->  MatMulT(x, w, transB=1)

    Exporters write the weights of a linear layer like this. A transposition, and that of its gradient, would move the
    whole matrix in every step.
    """
    turned = {op.outputs[0]: op for op in model.ops if _exchanges_matrix_axes(model, op)}
    if not turned:
        return model
    graph = model.copy()
    graph.ops = [_without_transposition(op, turned) for op in model.ops]
    return graph


def _exchanges_matrix_axes(model: Graph, op: Op) -> bool:
    if op.type != "Transpose" or op.domain or model.tensor(op.outputs[0]).role is Role.CONSTANT:
        return False
    rank = model.tensor(op.inputs[0]).rank
    order = list(op.attributes.get("perm", [])) or list(reversed(range(rank)))
    return rank > 1 and order == [*range(rank - 2), rank - 1, rank - 2]


def _without_transposition(op: Op, turned: dict[str, Op]) -> Op:
    if op.type != "MatMul" or op.domain or _SERIALISED in op.attributes or not turned.keys() & set(op.inputs):
        return op
    attributes, inputs = dict(op.attributes), list(op.inputs)
    for index, name in enumerate(("transA", "transB")):
        transposition = turned.get(inputs[index])
        if transposition is not None and transposition.guard in ("", op.guard):
            inputs[index] = transposition.inputs[0]
            attributes[name] = 1
    return replace(op, type="MatMulT", inputs=tuple(inputs), attributes=attributes)
