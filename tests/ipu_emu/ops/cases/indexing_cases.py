"""Cases of ops that move, select and sort elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.ipu_emu.ops.cases.case import Case, case, graphcore_op, onnx_op

__all__ = ["PLACES"]

Build = Callable[[Any, list[str]], str]


def with_constants(method: str, *values: Any, opset: int = 10, output: int = 0, **attributes: Any) -> Build:
    """An op whose further inputs are constants."""

    def build(builder: Any, ids: list[str]) -> str:
        face = getattr(builder, f"aiOnnxOpset{opset}")
        more = [face.constant(np.array(value)) if value is not None else "" for value in values]
        outputs = getattr(face, method)([*ids, *more], **attributes)
        return str(outputs[output] if isinstance(outputs, list) else outputs)

    return build


def indexed(op: str, opset: int, indices: Any, **attributes: Any) -> Build:
    """``op(x, indices, ...)``"""

    def build(builder: Any, ids: list[str]) -> str:
        face = builder.aiOnnxOpset11
        more = face.constant(np.array(indices, np.int64))
        return str(builder.customOp(op, opset, "ai.onnx", [ids[0], more, *ids[1:]], attributes)[0])

    return build


def dynamic(method: str, axes: list[int], sizes: list[int], offset: list[int]) -> Build:
    def build(builder: Any, ids: list[str]) -> str:
        at = builder.aiOnnx.constant(np.array(offset, np.uint32))
        return str(getattr(builder.aiGraphcore, method)([ids[0], at, *ids[1:]], axes, sizes))

    return build


def graphcore_indexed(method: str, indices: Any, *values: Any) -> Build:
    def build(builder: Any, ids: list[str]) -> str:
        at = builder.aiOnnx.constant(np.array(indices, np.int32))
        return str(getattr(builder.aiGraphcore, method)([ids[0], at, *ids[1:]], *values))

    return build


def both_parts(builder: Any, ids: list[str]) -> str:
    a, b = builder.aiOnnx.split(ids, 2, 1, [1, 3])
    return str(builder.aiOnnx.concat([b, a, b], 1))


def one_hot(builder: Any, ids: list[str]) -> str:
    rows, depth = (builder.aiOnnx.constant(np.array(value, np.int64)) for value in ([[1, 3], [0, -1]], 4))
    return str(builder.aiOnnx.onehot([rows, depth, *ids], 1))


def torch_one_hot(torch: Any, values: Any) -> Any:
    hot = torch.nn.functional.one_hot(torch.tensor([[1, 3], [0, 3]]), 4).permute(0, 2, 1)
    return torch.where(hot == 1, values[1], values[0])


def updated(torch: Any, x: Any, part: Any) -> Any:
    x = x.clone()
    x[1:3, 1:] = part
    return x


def scattered(torch: Any, x: Any, updates: Any) -> Any:
    return x.scatter(1, torch.tensor([[1, 0], [3, 2], [0, 1]]), updates)


def rows_set(torch: Any, x: Any, updates: Any) -> Any:
    x = x.clone()
    x[torch.tensor([2, 0])] = updates
    return x


def padded(mode: str) -> Any:
    return lambda t, x: t.nn.functional.pad(x, (2, 1), mode=mode)


def shuffled(torch: Any, x: Any, r: int) -> Any:
    """DepthToSpace in DCR order."""
    n, c, h, w = x.shape
    x = x.reshape(n, r, r, c // (r * r), h, w).permute(0, 3, 4, 1, 5, 2)
    return x.reshape(n, c // (r * r), h * r, w * r)


def grouped(torch: Any, x: Any) -> Any:
    return torch.stack([x[0][torch.tensor([1, 0, 1])], x[1][torch.tensor([2, 2, 0])]])


def reduced(how: str) -> Any:
    def torch_scatter(torch: Any, x: Any) -> Any:
        at = torch.tensor([2, 0, 2, 1])[:, None].expand(4, 3)
        return torch.zeros(5, 3).scatter_reduce(0, at, x, how, include_self=False)

    return torch_scatter


def cast_like(builder: Any, ids: list[str]) -> str:
    kind = builder.getTensorDtypeString(ids[0])
    like = builder.aiOnnx.constant(np.zeros(1, kind))
    return str(builder.customOp("CastLike", 15, "ai.onnx", [*ids, like], {})[0])


def pad_by_inputs(builder: Any, ids: list[str]) -> str:
    pads = builder.aiOnnxOpset11.constant(np.array([0, 1, 0, 0], np.int64))
    return str(builder.aiOnnxOpset11.pad([ids[0], pads, ids[1]]))


X34: Any = [(3, 4)]
AT = [[1, 0], [3, 2], [0, 1]]

PLACES: list[Case] = [
    case("PrintTensor", "", [(2, 3)], graphcore_op("printtensor"), lambda t, x: x, onnx=False),
    case("Squeeze", "", [(2, 1, 3, 1)], onnx_op("squeeze", [1, -1]), lambda t, x: x.reshape(2, 3), onnx=False),
    case("Squeeze", "all", [(2, 1, 3, 1)], onnx_op("squeeze"), lambda t, x: x.reshape(2, 3)),
    case("Unsqueeze", "", [(2, 3)], onnx_op("unsqueeze", [0, 2]), lambda t, x: x.reshape(1, 2, 1, 3)),
    case("Expand", "", [(3, 1)], with_constants("expand", [2, 1, 4]), lambda t, x: x.expand(2, 3, 4)),
    case("Tile", "", [(2, 3)], with_constants("tile", [2, 3]), lambda t, x: x.repeat(2, 3)),
    case("Concat", "", [(2, 3), (2, 1)], onnx_op("concat", -1), lambda t, a, b: t.cat([a, b], 1)),
    case("Split Concat", "", [(2, 4)], both_parts, lambda t, x: t.cat([x[:, 1:], x[:, :1], x[:, 1:]], 1)),
    case("Split", "one part", [(4, 2)], lambda b, i: b.aiOnnx.split(i, 2, 0)[1], lambda t, x: x[2:]),
    case("Slice", "attributes", [(4, 5)], onnx_op("slice", [3, 10], [-3, 1], opset=9), lambda t, x: x[1:3, 1:]),
    case(
        "Slice",
        "steps",
        [(4, 5)],
        with_constants("slice", [3, 0], [-9, 9], [0, 1], [-2, 3]),
        lambda t, x: x[[3, 1]][:, ::3],
    ),
    case("Slice", "graphcore", [(4, 5)], graphcore_op("slice", [3], [1], [1]), lambda t, x: x[:, 1:3], onnx=False),
    case("Subsample", "", [(4, 5)], graphcore_op("subsample", [2, 3]), lambda t, x: x[::2, ::3], onnx=False),
    case("Reverse", "", [(4, 5)], graphcore_op("reverse", [0]), lambda t, x: x.flip(0), onnx=False),
    case(
        "Pad",
        "constant",
        [(2, 3)],
        onnx_op("pad", [0, 2, 1, 0], "constant", 0.5),
        lambda t, x: t.nn.functional.pad(x, (2, 0, 0, 1), value=0.5),
    ),
    case(
        "Pad",
        "negative",
        [(2, 5)],
        onnx_op("pad", [0, -2, 1, 1]),
        lambda t, x: t.nn.functional.pad(x, (-2, 1, 0, 1)),
        onnx=False,
    ),
    case("Pad", "reflect", [(2, 4)], onnx_op("pad", [0, 2, 0, 1], "reflect"), padded("reflect")),
    case("Pad", "edge", [(2, 4)], onnx_op("pad", [0, 2, 0, 1], "edge"), padded("replicate")),
    case("Pad", "inputs", [(2, 3), ()], pad_by_inputs, lambda t, x, v: t.cat([v.expand(2, 1), x], 1)),
    case("DepthToSpace", "", [(2, 8, 2, 3)], onnx_op("depthtospace", 2, opset=11), lambda t, x: shuffled(t, x, 2)),
    case(
        "DepthToSpace",
        "CRD",
        [(2, 8, 2, 3)],
        onnx_op("depthtospace", 2, "CRD", opset=11),
        lambda t, x: t.nn.functional.pixel_shuffle(x, 2),
    ),
    case(
        "SpaceToDepth",
        "",
        [(1, 2, 4, 6)],
        onnx_op("spacetodepth", 2),
        lambda t, x: t.cat([x[:, :, i::2, j::2] for i in (0, 1) for j in (0, 1)], 1),
    ),
    case("CastLike", "", [(2, 3)], cast_like, lambda t, x: x, onnx=False),
    case(
        "Gather",
        "rows",
        [(4, 3)],
        with_constants("gather", [[0, 2], [2, -1]]),
        lambda t, x: x[t.tensor([[0, 2], [2, 3]])],
    ),
    case("Gather", "columns", [(2, 4, 2)], with_constants("gather", [1, 3, 1], axis=1), lambda t, x: x[:, [1, 3, 1]]),
    case(
        "GatherElements", "", X34, indexed("GatherElements", 11, AT, axis=1), lambda t, x: x.gather(1, t.tensor(AT))
    ),
    case("Scatter", "", [(3, 4), (3, 2)], indexed("Scatter", 9, AT, axis=1), scattered, onnx=False),
    case("ScatterElements", "", [(3, 4), (3, 2)], indexed("ScatterElements", 11, AT, axis=1), scattered),
    case(
        "ScatterElements",
        "add",
        [(3, 4), (3, 2)],
        indexed("ScatterElements", 16, AT, axis=1, reduction="add"),
        lambda t, x, u: x.scatter_add(1, t.tensor(AT), u),
        onnx=False,
    ),
    case(
        "GatherND",
        "",
        [(3, 4, 2)],
        indexed("GatherND", 11, [[0, 1], [2, 3], [0, 1]]),
        lambda t, x: x[[0, 2, 0], [1, 3, 1]],
    ),
    case(
        "GatherND",
        "batch",
        [(2, 3, 2)],
        indexed("GatherND", 12, [[1], [0]], batch_dims=1),
        lambda t, x: x[[0, 1], [1, 0]],
        onnx=False,
    ),
    case("ScatterND", "", [(3, 4), (2, 4)], indexed("ScatterND", 11, [[2], [0]]), rows_set),
    case(
        "ScatterND",
        "add",
        [(3, 4), (2, 4)],
        indexed("ScatterND", 16, [[2], [2]], reduction="add"),
        lambda t, x, u: x.index_add(0, t.tensor([2, 2]), u),
        onnx=False,
    ),
    case("OneHot", "", [(2,)], one_hot, torch_one_hot),
    case(
        "DynamicSlice",
        "",
        [(4, 5)],
        dynamic("dynamicslice", [0, 1], [2, 4], [1, 1]),
        lambda t, x: x[1:3, 1:],
        onnx=False,
    ),
    case(
        "DynamicUpdate", "", [(4, 5), (2, 4)], dynamic("dynamicupdate", [0, 1], [2, 4], [1, 1]), updated, onnx=False
    ),
    case(
        "DynamicAdd",
        "",
        [(4, 5), (2, 5)],
        dynamic("dynamicadd", [0], [2], [2]),
        lambda t, x, p: x + t.cat([0 * p, p]),
        onnx=False,
    ),
    case(
        "DynamicZero",
        "",
        [(4, 5)],
        dynamic("dynamiczero", [0], [3], [1]),
        lambda t, x: t.cat([x[:1], 0 * x[1:]]),
        onnx=False,
    ),
    case(
        "GroupedGather",
        "",
        [(2, 3, 4)],
        graphcore_indexed("groupedgather", [[1, 0, 1], [2, 2, 0]], 1, 2),
        grouped,
        onnx=False,
    ),
    case(
        "ScatterReduce",
        "sum",
        [(4, 3)],
        graphcore_indexed("scatterreduce", [2, 0, 2, 1], 5, 0),
        reduced("sum"),
        onnx=False,
    ),
    case(
        "ScatterReduce",
        "max",
        [(4, 3)],
        graphcore_indexed("scatterreduce", [2, 0, 2, 1], 5, 0, "max"),
        reduced("amax"),
        onnx=False,
        distinct=True,
    ),
    case("TopK", "", [(3, 5)], with_constants("topk", [2]), lambda t, x: x.topk(2)[0], distinct=True),
    case(
        "TopK",
        "smallest",
        [(5, 3)],
        with_constants("topk", [2], opset=11, axis=0, largest=0),
        lambda t, x: x.topk(2, 0, False)[0],
        distinct=True,
    ),
    case(
        "Sort",
        "",
        [(3, 5)],
        lambda b, i: b.aiGraphcore.sort(i)[0],
        lambda t, x: x.sort()[0],
        onnx=False,
        distinct=True,
    ),
    case(
        "ReduceMedian",
        "",
        [(3, 5)],
        lambda b, i: b.aiGraphcore.reducemedian(i, [1], 0)[0],
        lambda t, x: x.median(1)[0],
        onnx=False,
        distinct=True,
    ),
    case("CumSum", "", [(3, 5)], with_constants("cumsum", 1, opset=11), lambda t, x: x.cumsum(1)),
    case(
        "CumSum",
        "back",
        [(3, 5)],
        with_constants("cumsum", 0, opset=11, exclusive=1, reverse=1),
        lambda t, x: x.flip(0).cumsum(0).flip(0) - x,
    ),
    case(
        "ReverseSequence",
        "",
        [(4, 3)],
        indexed("ReverseSequence", 10, [2, 4, 1]),
        lambda t, x: t.stack([x[[1, 0, 2, 3], 0], x[[3, 2, 1, 0], 1], x[:, 2]], 1),
    ),
]
