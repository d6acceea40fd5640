"""Reductions, sorted and cumulative values."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ipu_emu.graph.dtype import BOOL, FLOAT, INT32
from ipu_emu.ops import Value, concatenated
from ipu_emu.poptorch.aten.call import Call, Rule, finite, in_float, raised, root


def _reduced(type: str, x: Value, axes: list[int], keep: Any) -> Value:
    """A reduction; that of a scalar is along an axis of its own."""
    x, axes = (x, axes) if x.tensor.rank else (x.shaped((1,)), [0])
    return x.op(type, axes=axes, keepdims=int(bool(keep)))


def _reduction(type: str) -> Rule:
    def rule(call: Call) -> Value:
        return _reduced(type, call.x.cast(call.dtype), call.axes(), call.get("keepdim", False))

    return rule


def _truth(type: str, of_none: bool) -> Rule:
    """Return the rule of ``any`` or ``all``, which is ``of_none`` for no elements; an empty list has no axes."""

    def rule(call: Call) -> Value:
        hits, axes = call.x.cast(BOOL), call.get("dim")
        if not hits.tensor.nelms:
            return call.constant(of_none).spread_to(call.shape)
        if isinstance(axes, list) and not axes:
            return hits
        return _reduced(type, hits.cast(INT32), call.axes(), call.get("keepdim", False)).cast(BOOL)

    return rule


def _count_nonzero(call: Call) -> Value:
    return _reduced("ReduceSum", call.x.cast(BOOL).cast(INT32), call.axes(), False)


def _extreme(reduce: str, arg: str) -> Rule:
    def rule(call: Call) -> Any:
        x = call.atleast_1d
        if "dim" not in call.arguments:
            return _reduced(reduce, x, [*range(x.tensor.rank)], False)
        axis = call.axis()
        places = x.op(arg, axis=axis, keepdims=1)
        values = x.op("GatherElements", places, axis=axis)
        return [values.shaped(call.shape), places.cast(INT32).shaped(call.shape)]

    return rule


def _arg(type: str) -> Rule:
    def rule(call: Call) -> Value:
        x = call.atleast_1d
        if call.get("dim") is None:
            return x.shaped((x.tensor.nelms,)).op(type, axis=0, keepdims=0).cast(INT32).shaped(call.shape)
        return x.op(type, axis=call.axis(), keepdims=int(call.get("keepdim", False))).cast(INT32)

    return rule


def _correction(call: Call) -> float:
    if "correction" in call.arguments:
        return float(call.get("correction", 1))
    return float(call.get("unbiased", True))


def _moments(call: Call) -> tuple[Value, Value]:
    x, axes = call.atleast_1d.cast(call.dtype), call.axes() or [0]
    mean = _reduced("ReduceMean", x, axes, True)
    centred = x - mean
    count = prod(x.tensor.shape[axis] for axis in axes)
    total = _reduced("ReduceSum", centred * centred, axes, True)
    return total / total.like(max(count - _correction(call), 0)), mean


def _var_mean(call: Call) -> list[Value]:
    return [moment.shaped(tuple(out.shape)) for moment, out in zip(_moments(call), call.outputs, strict=True)]


def _std_mean(call: Call) -> list[Value]:
    variance, mean = _var_mean(call)
    return [root(variance), mean]


def _aminmax(call: Call) -> list[Value]:
    axes, keep = call.axes(), call.get("keepdim", False)
    return [_reduced(type, call.x, axes, keep) for type in ("ReduceMin", "ReduceMax")]


def _norm(call: Call) -> Value:
    x, axes, keep = call.x.cast(call.dtype), call.axes(), call.get("keepdim", False)
    order = call.get("p", call.get("ord", 2))
    order = 2.0 if order in ("fro", None) else float(order)
    if order == 2:
        return root(_reduced("ReduceSumSquare", x, axes, keep))
    size = x.op("Abs")
    if order == 1:
        return _reduced("ReduceSum", size, axes, keep)
    if np.isinf(order):
        return _reduced("ReduceMax" if order > 0 else "ReduceMin", size, axes, keep)
    if order == 0:
        return _reduced("ReduceSum", x.cast(BOOL).cast(x.tensor.dtype), axes, keep)
    total = _reduced("ReduceSum", raised(size, order), axes, keep)
    return root(total, 1 / order) if order > 0 else total.op("Pow", x.like(1 / order))


def _logsumexp(call: Call) -> Value:
    x, axes = call.x.cast(call.dtype), call.axes()
    high = finite(_reduced("ReduceMax", x, axes, True).op("Detach"))
    total = _reduced("ReduceSum", (x - high).op("Exp"), axes, True).op("Log")
    return (total + high).shaped(call.shape)


def _cumsum(call: Call) -> Value:
    return call.atleast_1d.cast(call.dtype).op("CumSum", call.constant(np.array(call.axis()), np.int32))


def _cumprod(call: Call) -> Value:
    """One product per element, because products have gradients."""
    x, axis = call.atleast_1d.cast(call.dtype), call.axis()
    products = [call.sliced(x, [0], [1], [axis])]
    for place in range(1, x.tensor.shape[axis]):
        products.append(products[-1] * call.sliced(x, [place], [place + 1], [axis]))
    return concatenated(products, axis)


def _topk(call: Call) -> list[Value]:
    x, axis = call.atleast_1d, call.axis("dim", -1)
    largest = int(call.get("largest", True))
    values, places = x.ops(2, "TopK", call.constant([call["k"]], np.int64), axis=axis, largest=largest, sorted=1)
    return [values, places.cast(INT32)]


def _sort(call: Call) -> list[Value]:
    x, axis = call.atleast_1d, call.axis("dim", -1)
    values, places = x.ops(2, "Sort", axis=axis, descending=int(call.get("descending", False)), stable=1)
    return [values, places.cast(INT32)]


def _median(call: Call) -> Any:
    x = call.atleast_1d
    if "dim" not in call.arguments:
        return _middle_of_all(call, x.shaped((x.tensor.nelms,)))
    values, places = _middle(call, x, call.axis())
    return [values.shaped(call.shape), places.cast(INT32).shaped(call.shape)]


def _middle_of_all(call: Call, x: Value) -> Value:
    """The lower median, whose gradient all elements of its value share."""
    middle = _middle(call, x, 0)[0].op("Detach")
    equal = x.op("Equal", middle).op("And", middle.op("IsInf").op("Not"))
    count = equal.cast(FLOAT).op("ReduceSum", axes=[0], keepdims=1)
    share = equal.op("Where", x - middle, x.like(0)).op("ReduceSum", axes=[0], keepdims=1)
    return middle + (share.cast(FLOAT) / count.op("Max", count.like(1))).cast(x.tensor.dtype)


def _middle(call: Call, x: Value, axis: int) -> list[Value]:
    """The lower median and its place along an axis; NaN if there is one, which a descending order has first."""
    size = x.tensor.shape[axis]
    pairs = [x.ops(2, "Sort", axis=axis, descending=falls, stable=1) for falls in range(1 + x.tensor.dtype.is_float)]
    firsts = [
        [call.sliced(operand, [place], [place + 1], [axis]) for operand in pair]
        for pair, place in zip(pairs, ((size - 1) // 2, 0), strict=False)
    ]
    if len(firsts) == 1:
        return firsts[0]
    unordered = firsts[1][0].op("IsNaN")
    return [unordered.op("Where", largest, middle) for middle, largest in zip(*firsts, strict=True)]


def _nansum(call: Call) -> Value:
    x = call.x.cast(call.dtype)
    return _reduced("ReduceSum", x.op("IsNaN").op("Where", x.like(0), x), call.axes(), call.get("keepdim", False))


def _searchsorted(call: Call) -> Value:
    if call.get("sorter") is not None:
        raise call.refuse("sorter is not supported; sort the sequence before")
    return _places_in(call, "sorted_sequence", right=bool(call.get("right", False)) or call.get("side") == "right")


def _places_in(call: Call, name: str, *, right: bool) -> Value:
    """The number of edges below each value, or, with ``right``, below or equal to it; NaN is above all."""
    edges, x = call.common(name, "self")
    if edges.tensor.rank == 1:
        return x.op("Bucketize", edges, right=int(right))
    edges = edges.shaped((*edges.tensor.shape[:-1], 1, edges.tensor.shape[-1]))
    above = edges.op("Greater" if right else "GreaterOrEqual", x.shaped((*x.tensor.shape, 1))).op("Not")
    return above.cast(INT32).op("ReduceSum", axes=[above.tensor.rank - 1], keepdims=0)


RULES: dict[str, Rule] = {
    "all": _truth("ReduceMin", True),
    "amax": _reduction("ReduceMax"),
    "amin": _reduction("ReduceMin"),
    "aminmax": _aminmax,
    "any": _truth("ReduceMax", False),
    "argmax": _arg("ArgMax"),
    "argmin": _arg("ArgMin"),
    "argsort": lambda call: _sort(call)[1],
    "bucketize": lambda call: _places_in(call, "boundaries", right=bool(call.get("right", False))),
    "count_nonzero": _count_nonzero,
    "cumprod": in_float(_cumprod),
    "cumsum": _cumsum,
    "linalg_vector_norm": in_float(_norm),
    "logsumexp": in_float(_logsumexp),
    "max": _extreme("ReduceMax", "ArgMax"),
    "mean": _reduction("ReduceMean"),
    "median": _median,
    "min": _extreme("ReduceMin", "ArgMin"),
    "nansum": _nansum,
    "norm": in_float(_norm),
    "prod": _reduction("ReduceProd"),
    "searchsorted": _searchsorted,
    "sort": _sort,
    "std": in_float(lambda call: root(_moments(call)[0]).shaped(call.shape)),
    "std_mean": in_float(_std_mean),
    "sum": _reduction("ReduceSum"),
    "topk": _topk,
    "var": in_float(lambda call: _moments(call)[0].shaped(call.shape)),
    "var_mean": in_float(_var_mean),
}
