"""Rule cases: for each op type with a rule, how to call it, on operands that hypothesis draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.ipu_emu.tensorflow.importer.case_forms import Case, call, elementwise, listed, numbers, reduction, shape_of
from tests.ipu_emu.tensorflow.importer.window_cases import (
    batch_norm,
    batch_norm_grad,
    convolution,
    image,
    pool,
    pool_volume,
    volume,
)

# Shapes and indices


def _any(random: Any, least: int = 1) -> Any:
    return numbers(random, shape_of(random, rank=int(random.integers(least, 5))))


def _begin_and_size(random: Any, x: Any) -> tuple[list[int], list[int]]:
    begin = [int(random.integers(0, n)) for n in x.shape]
    return begin, [int(random.integers(1, n - b + 1)) for n, b in zip(x.shape, begin, strict=True)]


def _slice(random: Any) -> Any:
    x = _any(random)
    begin, size = _begin_and_size(random, x)
    return [x, np.array(begin, np.int32), np.array(size, np.int32)], {}


def _strided(random: Any) -> Any:
    x = numbers(random, shape_of(random, 5, int(random.integers(1, 4))))
    begin, end, steps = [], [], []
    for n in x.shape:
        step = int(random.choice([-2, -1, 1, 2]))
        first, last = sorted((int(random.integers(0, n)), int(random.integers(0, n))))
        begin.append(last if step < 0 else first)
        end.append(first if step < 0 else last + 1)
        steps.append(step)
    masks = {f"{name}_mask": int(random.integers(0, 2**x.ndim)) for name in ("begin", "end")}
    masks["shrink_axis_mask"] = int(random.integers(0, 2)) << int(random.integers(0, x.ndim))
    steps = [1 if masks["shrink_axis_mask"] >> axis & 1 else step for axis, step in enumerate(steps)]
    return [x, *(np.array(one, np.int32) for one in (begin, end, steps))], masks


def _strided_grad(name: str, random: Any) -> Any:
    from tensorflow import raw_ops
    from tensorflow.python.eager import context

    (x, begin, end, steps), masks = _strided(random)
    with context.eager_mode():
        made = raw_ops.StridedSlice(input=x, begin=begin, end=end, strides=steps, **masks)
    g = numbers(random, tuple(made.shape))
    return [g], lambda raw, dy: raw.StridedSliceGrad(
        shape=np.array(x.shape, np.int32), begin=begin, end=end, strides=steps, dy=dy, **masks
    )


def _pads(random: Any, most: int = 2) -> Any:
    x = _any(random)
    pairs = np.array([random.integers(0, min(most, n - 1 if most == 1 else most) + 1, 2) for n in x.shape], np.int32)
    return x, pairs


def _mirror(random: Any) -> Any:
    x, pairs = _pads(random, 1)
    return [x, pairs], {"mode": ("REFLECT", "SYMMETRIC")[int(random.integers(0, 2))]}


def _mirror_grad(random: Any) -> Any:
    (x, pairs), more = _mirror(random)
    shape = tuple(n + int(pair.sum()) for n, pair in zip(x.shape, pairs, strict=True))
    return [numbers(random, shape), pairs], more


def _concat_operands(random: Any) -> tuple[list[Any], int]:
    shape = list(shape_of(random, rank=int(random.integers(1, 5))))
    axis, made = int(random.integers(0, len(shape))), []
    for _ in range(int(random.integers(2, 4))):
        shape[axis] = int(random.integers(1, 4))
        made.append(numbers(random, tuple(shape)))
    return made, axis


def _concat(argument: str, where: str) -> Case:
    def case(name: str, random: Any) -> Any:
        operands, axis = _concat_operands(random)
        return operands, lambda raw, *v: getattr(raw, name)(**{argument: list(v), where: np.int32(axis)})

    return case


def _gather(random: Any) -> Any:
    x = _any(random)
    batch = 0
    axis = int(random.integers(batch, x.ndim))
    indices = random.integers(0, x.shape[axis], shape_of(random, rank=int(random.integers(0, 3)))).astype(np.int32)
    return [x, indices, np.int32(axis)], {}


def _gather_batched(random: Any) -> Any:
    x = numbers(random, shape_of(random, rank=3))
    indices = random.integers(0, x.shape[1], (x.shape[0], 2)).astype(np.int32)
    return [x, indices, np.int32(1)], {"batch_dims": 1}


def _nd(random: Any) -> tuple[Any, Any, Any]:
    """An array, indices into its first axes without repetition, and updates."""
    x = numbers(random, shape_of(random, rank=3))
    depth = int(random.integers(1, 4))
    flat = random.permutation(int(np.prod(x.shape[:depth])))[: int(random.integers(1, 4))]
    indices = np.stack(np.unravel_index(flat, x.shape[:depth]), -1).astype(np.int32)
    return x, indices, numbers(random, (len(flat), *x.shape[depth:]))


def _scatter_nd(name: str, random: Any) -> Any:
    x, indices, updates = _nd(random)
    shape = np.array(x.shape, np.int32)
    return [indices, updates], lambda raw, a, b: raw.ScatterNd(indices=a, updates=b, shape=shape)


def _segments(random: Any) -> Any:
    x = _any(random)
    return [x, random.integers(0, 5, x.shape[:1]).astype(np.int32), np.int32(5)], {}


def _sorted_segments(random: Any) -> Any:
    x = _any(random)
    return [x, np.sort(random.integers(0, 3, x.shape[:1])).astype(np.int32)], {}


def _blocks(random: Any) -> Any:
    x = numbers(random, (2, 4, 6, int(random.integers(1, 3))))
    return [x, np.array([2, 3], np.int32), np.array([[1, 1], [0, 3]], np.int32)], {}


def _from_blocks(random: Any) -> Any:
    x = numbers(random, (12, 3, 2, int(random.integers(1, 3))))
    return [x, np.array([2, 3], np.int32), np.array([[1, 1], [0, 2]], np.int32)], {}


def _rows(random: Any) -> tuple[int, int]:
    return int(random.integers(1, 5)), int(random.integers(1, 6))


def _sparse_entropy(random: Any) -> Any:
    rows, classes = _rows(random)
    return [numbers(random, (rows, classes)), random.integers(0, classes, rows).astype(np.int32)], {}


def _entropy(random: Any) -> Any:
    rows, classes = _rows(random)
    return [numbers(random, (rows, classes)), numbers(random, (rows, classes), low=0.0)], {}


def _top(random: Any) -> Any:
    x = random.permutation(60)[: int(random.integers(3, 12))].astype(np.float32)
    return [np.stack([x, x[::-1]]), np.int32(random.integers(1, len(x)))], {}


def _in_top(random: Any) -> Any:
    rows, classes = int(random.integers(1, 5)), 7
    scores = np.stack([random.permutation(classes) for _ in range(rows)]).astype(np.float32)
    return [scores, random.integers(0, classes, rows).astype(np.int32), np.int32(random.integers(1, 4))], {}


def _bincount(random: Any) -> Any:
    values = random.integers(0, 7, shape_of(random, rank=int(random.integers(1, 3)))).astype(np.int32)
    weights = numbers(random, values.shape if random.integers(0, 2) else (0,))
    return [values, np.int32(5), weights], {"binary_output": bool(random.integers(0, 2))}


def _matrices(random: Any, *, batched: bool = False) -> tuple[Any, Any, bool, bool]:
    m, k, n = (int(one) for one in random.integers(1, 5, 3))
    left, right = bool(random.integers(0, 2)), bool(random.integers(0, 2))
    batch = (int(random.integers(1, 4)),) if batched else ()
    a, b = numbers(random, (*batch, m, k)), numbers(random, (*batch, k, n))
    return (np.swapaxes(a, -1, -2) if left else a), (np.swapaxes(b, -1, -2) if right else b), left, right


def _matmul(random: Any) -> Any:
    a, b, left, right = _matrices(random)
    return [a, b], {"transpose_a": left, "transpose_b": right}


def _batch_matmul(**more: Any) -> Callable[[Any], Any]:
    def make(random: Any) -> Any:
        a, b, left, right = _matrices(random, batched=True)
        return [a, b], {"adj_x": left, "adj_y": right, **more}

    return make


def _like(name: str, random: Any) -> Any:
    x = _any(random, 0)
    return [x], lambda raw, a: getattr(raw, name)(x=a) + 0 * a


def _positive(random: Any) -> Any:
    return numbers(random, shape_of(random), low=0.5, high=3.0)


def _accumulated(name: str, random: Any) -> Any:
    """TensorFlow's own kernel is made only when it rewrites a graph."""
    from tensorflow.python.eager import context

    x = _fixed(random)

    def both(raw: Any, a: Any, b: Any) -> Any:
        if context.executing_eagerly():
            return raw.AddN(inputs=[a, b])
        return raw.AccumulateNV2(inputs=[a, b], shape=list(x.shape))

    return [x, x + 1], both


def _sizes(name: str, random: Any) -> Any:
    x = _any(random, 0)
    if name == "ShapeN":
        return [x], lambda raw, a: [*raw.ShapeN(input=[a, a])]
    return [x], lambda raw, a: getattr(raw, name)(input=a)


def _fixed(random: Any) -> Any:
    shape = shape_of(random, rank=int(random.integers(1, 5)))
    return numbers(random, shape)


def _corners(random: Any) -> dict[str, bool]:
    """How pixels are placed; both at once are not allowed."""
    return [{}, {"align_corners": True}, {"half_pixel_centers": True}][int(random.integers(0, 3))]


CASES: dict[str, Case] = {
    **{
        name: elementwise(1)
        for name in (
            "Abs", "Asinh", "Atan", "Ceil", "Cos", "Cosh", "Elu", "Erf", "Erfc", "Exp", "Expm1",
            "Floor", "IsFinite", "IsInf", "IsNan", "Neg", "Relu", "Relu6", "Rint", "Round", "Selu", "Sigmoid", "Sign",
            "Sin", "Sinh", "Softplus", "Softsign", "Square", "Tan", "Tanh",
        )
    },
    **{name: elementwise(1, low=-0.9, high=0.9) for name in ("Acos", "Asin", "Atanh")},
    **{name: elementwise(1, low=1.1, high=3.0) for name in ("Acosh",)},
    **{name: elementwise(1, low=0.3, high=3.0) for name in ("Inv", "Log", "Log1p", "Reciprocal", "Rsqrt", "Sqrt")},
    **{
        name: elementwise(2, spread=True)
        for name in (
            "Add", "AddV2", "Atan2", "DivNoNan", "Equal", "Greater", "GreaterEqual", "Less", "LessEqual", "Maximum",
            "Minimum", "Mul", "MulNoNan", "NotEqual", "SquaredDifference", "Sub", "Xdivy",
        )
    },
    **{name: elementwise(2, low=0.5, high=3.0, spread=True) for name in ("Div", "FloorDiv", "FloorMod", "Mod", "Pow",
       "RealDiv", "TruncateMod", "Xlog1py", "Xlogy")},
    **{
        name: elementwise(2)
        for name in (
            "EluGrad", "LeakyReluGrad", "Relu6Grad", "ReluGrad", "SeluGrad", "SigmoidGrad", "SoftplusGrad",
            "SoftsignGrad", "TanhGrad", "ReciprocalGrad", "InvGrad",
        )
    },
    **{name: elementwise(2, low=0.5, high=2.0) for name in ("RsqrtGrad", "SqrtGrad")},
    **{name: elementwise(2, "i", 0, 9) for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")},
    **{name: elementwise(2, "i", 0, 4) for name in ("LeftShift", "RightShift")},
    **{name: elementwise(2, "b", spread=True) for name in ("LogicalAnd", "LogicalOr")},
    **{name: reduction() for name in ("EuclideanNorm", "Max", "Mean", "Min", "Prod", "Sum")},
    **{name: reduction("b") for name in ("All", "Any")},
    "CheckNumerics": call(lambda r: ([_fixed(r)], {"message": "finite"})),
    **dict.fromkeys(("OnesLike", "ZerosLike"), _like),
    **dict.fromkeys(("Rank", "Shape", "ShapeN", "Size"), _sizes),
    "AccumulateNV2": _accumulated,
    "AddN": listed(lambda r: ([_v := _fixed(r), _v + 1, _v * 2], {}), "inputs"),
    "ApproximateEqual": elementwise(2, tolerance=0.5),
    "ArgMax": call(lambda r: ([_any(r), np.int32(-1)], {}), 1),
    "ArgMin": call(lambda r: ([_any(r), np.int32(0)], {}), 1),
    "AvgPool": pool("forward"),
    "AvgPool3D": pool_volume,
    "AvgPool3DGrad": volume,
    "AvgPoolGrad": pool("backward"),
    "BatchMatMul": call(_batch_matmul()),
    "BatchMatMulV2": call(_batch_matmul()),
    "BatchMatMulV3": call(_batch_matmul(Tout=np.float32)),
    "BatchToSpaceND": call(_from_blocks, 1),
    "BiasAdd": call(lambda r: ([_v := numbers(r, shape_of(r, rank=4)), numbers(r, _v.shape[-1:])], {})),
    "BiasAddGrad": call(lambda r: ([numbers(r, shape_of(r, rank=4))], {})),
    "BroadcastTo": call(lambda r: ([numbers(r, (1, 3)), np.array([2, 4, 3], np.int32)], {}), 1),
    "Cast": call(lambda r: ([numbers(r, shape_of(r), low=0)], {"DstT": r.choice(np.array([np.int32, np.bool_]))})),
    "ClipByValue": call(lambda r: ([_fixed(r), np.float32(-0.5), np.float32(0.5)], {})),
    "Concat": _concat("values", "concat_dim"),
    "ConcatV2": _concat("values", "axis"),
    "Conv2D": convolution("forward"),
    "Conv2DBackpropFilter": convolution("filter"),
    "Conv2DBackpropInput": convolution("input"),
    "Conv3D": call(lambda r: ([numbers(r, (2, 4, 5, 4, 2)), numbers(r, (2, 3, 2, 2, 3))],
                              {"strides": [1, 1, 2, 1, 1], "padding": ("SAME", "VALID")[int(r.integers(0, 2))]})),
    "Conv3DBackpropFilterV2": volume,
    "Conv3DBackpropInputV2": volume,
    "Cumprod": call(lambda r: ([_any(r), np.int32(0)], {"exclusive": bool(r.integers(0, 2))}), 1),
    "Cumsum": call(lambda r: ([_any(r), np.int32(-1)], {"reverse": bool(r.integers(0, 2))}), 1),
    "DepthToSpace": call(lambda r: ([numbers(r, (2, 3, 2, 8))], {"block_size": 2})),
    "DepthwiseConv2dNative": convolution("forward", deep=True),
    "DepthwiseConv2dNativeBackpropFilter": convolution("filter", deep=True),
    "DepthwiseConv2dNativeBackpropInput": convolution("input", deep=True),
    "DenseBincount": call(_bincount, 1),
    "Diag": call(lambda r: ([numbers(r, (4,))], {})),
    "DiagPart": call(lambda r: ([numbers(r, (4, 4))], {})),
    "Einsum": listed(lambda r: ([numbers(r, (2, 3, 4)), numbers(r, (4, 5))], {"equation": "abc,cd->bad"}), "inputs"),
    "EnsureShape": call(lambda r: ([numbers(r, (2, 3))], {"shape": [2, 3]})),
    "ExpandDims": call(lambda r: ([_any(r), np.int32(r.integers(-2, 2))], {}), 1),
    "Fill": lambda name, r: ([numbers(r, ())], lambda raw, v: raw.Fill(dims=np.array([2, 3], np.int32), value=v)),
    "FusedBatchNorm": batch_norm,
    "FusedBatchNormGrad": batch_norm_grad,
    "FusedBatchNormGradV2": batch_norm_grad,
    "FusedBatchNormGradV3": batch_norm_grad,
    "FusedBatchNormV2": batch_norm,
    "FusedBatchNormV3": batch_norm,
    "Gather": call(lambda r: ([_any(r), np.zeros(2, np.int32)], {})),
    "GatherNd": call(lambda r: (list(_nd(r)[:2]), {})),
    "GatherV2": call(lambda r: (_gather if r.integers(0, 2) else _gather_batched)(r), 2),
    "Identity": call(lambda r: ([_fixed(r)], {})),
    "IdentityN": listed(lambda r: ([_fixed(r), _fixed(r)], {}), "input"),
    "InTopKV2": call(_in_top, 2),
    "Invert": elementwise(1, "i", -5, 5),
    "L2Loss": call(lambda r: ([_fixed(r)], {})),
    "LRN": call(lambda r: ([numbers(r, (2, 3, 3, 7))], {"depth_radius": 2, "bias": 1.5, "alpha": 0.3, "beta": 0.6})),
    "LeakyRelu": elementwise(1, alpha=0.3),
    "LogSoftmax": call(lambda r: ([numbers(r, _rows(r))], {})),
    "LogicalNot": elementwise(1, "b"),
    "MatMul": call(_matmul),
    "MatrixBandPart": call(lambda r: ([numbers(r, (2, 4, 5)), *r.integers(-1, 4, 2).astype(np.int32)], {}), 1),
    "MatrixDiag": call(lambda r: ([numbers(r, (2, 4))], {})),
    "MatrixDiagPart": call(lambda r: ([numbers(r, (2, 4, 3))], {})),
    "MatrixDiagPartV3": call(lambda r: ([numbers(r, (2, 4, 3)), np.int32(0), np.float32(0)], {}), 1),
    "MatrixDiagV3": call(
        lambda r: ([numbers(r, (2, 4)), np.int32(0), np.int32(-1), np.int32(-1), np.float32(0)], {}), 1
    ),
    "MatrixSetDiag": call(lambda r: ([numbers(r, (2, 4, 3)), numbers(r, (2, 3))], {})),
    "MatrixSetDiagV3": call(lambda r: ([numbers(r, (2, 3, 4)), numbers(r, (2, 3)), np.int32(0)], {}), 2),
    "ResizeBilinear": call(lambda r: ([image(r), r.integers(1, 12, 2).astype(np.int32)], _corners(r)), 1),
    "ResizeBilinearGrad": call(lambda r: ([numbers(r, (2, 4, 5, 3)), numbers(r, (2, 6, 3, 3))], _corners(r))),
    "ResizeNearestNeighbor": call(lambda r: ([image(r), r.integers(1, 12, 2).astype(np.int32)], _corners(r)), 1),
    "ResizeNearestNeighborGrad": call(lambda r: ([image(r), r.integers(2, 9, 2).astype(np.int32)], _corners(r)), 1),
    "MaxPool": pool("forward"),
    "MaxPool3D": pool_volume,
    "MaxPool3DGrad": volume,
    "MaxPoolGrad": pool("backward"),
    "MirrorPad": call(_mirror, 1),
    "MirrorPadGrad": call(_mirror_grad, 1),
    "OneHot": call(lambda r: ([r.integers(-1, 5, shape_of(r, rank=2)).astype(np.int32), np.int32(4), np.float32(2),
                               np.float32(-1)], {"axis": int(r.integers(-1, 3))}), 1),
    "Pack": listed(lambda r: ([_v := _fixed(r), _v + 1], {"axis": int(r.integers(-1, 2))}), "values"),
    "Pad": call(lambda r: (list(_pads(r)), {}), 1),
    "PadV2": call(lambda r: ([*_pads(r), np.float32(1.5)], {}), 1),
    "PreventGradient": call(lambda r: ([_fixed(r)], {})),
    "Reshape": call(lambda r: ([numbers(r, (2, 3, 4)), np.array([4, -1], np.int32)], {}), 1),
    "ReverseV2": call(lambda r: ([numbers(r, shape_of(r, rank=3)), np.array([0, 2], np.int32)], {}), 1),
    "Roll": call(lambda r: ([numbers(r, (4, 5)), np.array([1, -2], np.int32), np.array([0, 1], np.int32)], {}), 1),
    "ScatterNd": _scatter_nd,
    "SegmentSum": call(_sorted_segments, 1),
    "Select": call(lambda r: ([numbers(r, (3,), "b"), numbers(r, (3, 2)), numbers(r, (3, 2))], {})),
    "SelectV2": call(lambda r: ([numbers(r, (3, 1), "b"), numbers(r, (3, 2)), numbers(r, (2,))], {})),
    "Slice": call(_slice, 1),
    "Snapshot": call(lambda r: ([_fixed(r)], {})),
    "Softmax": call(lambda r: ([numbers(r, _rows(r))], {})),
    "SoftmaxCrossEntropyWithLogits": call(_entropy),
    "SpaceToBatchND": call(_blocks, 1),
    "SpaceToDepth": call(lambda r: ([numbers(r, (2, 4, 6, 3))], {"block_size": 2})),
    "SparseSoftmaxCrossEntropyWithLogits": call(_sparse_entropy),
    "Split": lambda name, r: ([numbers(r, (2, 6))], lambda raw, v: raw.Split(axis=np.int32(1), value=v, num_split=3)),
    "SplitV": lambda name, r: (
        [numbers(r, (2, 6))],
        lambda raw, v: raw.SplitV(value=v, size_splits=np.array([1, -1, 2], np.int32), axis=np.int32(1), num_split=3),
    ),
    "Squeeze": call(lambda r: ([numbers(r, (1, 3, 1, 2))], {"axis": [[], [0], [2]][int(r.integers(0, 3))]})),
    "StopGradient": call(lambda r: ([_fixed(r)], {})),
    "StridedSlice": call(_strided, 1),
    "StridedSliceGrad": _strided_grad,
    "TensorScatterAdd": call(lambda r: (list(_nd(r)), {})),
    "TensorScatterSub": call(lambda r: (list(_nd(r)), {})),
    "TensorScatterUpdate": call(lambda r: (list(_nd(r)), {})),
    "Tile": call(lambda r: ([numbers(r, (2, 3)), r.integers(1, 4, 2).astype(np.int32)], {}), 1),
    "TopKV2": call(_top, 1),
    "Transpose": call(lambda r: ([numbers(r, shape_of(r, rank=4)), r.permutation(4).astype(np.int32)], {}), 1),
    "TruncateDiv": elementwise(2, "i", 1, 9),
    "Unpack": call(lambda r: ([numbers(r, (3, 2, 3))], {"num": 3, "axis": int(r.integers(0, 2)) * 2})),
    "UnsortedSegmentSum": call(_segments, 2),
}  # fmt: skip
