"""Tables of small checks against PyTorch: results, gradients and FLOAT16 of ops, with their attributes.

A row has the inputs and options of one call of the Builder, and the same function in PyTorch. An input None is an
absent one. ``wrt`` are the inputs whose gradients are compared, ``known`` those that must be constants.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from tests.ipu_emu.ops.cases.edge_tables import Array, ints, some

__all__ = ["TABLES", "Row"]


@dataclass(frozen=True)
class Row:
    """One call of an op, and the same function in PyTorch."""

    name: str
    arrays: list[Array | None]
    options: dict[str, Any]
    function: Callable[..., Any]
    opset: int = 10
    wrt: tuple[int, ...] = (0,)
    known: tuple[int, ...] = ()
    half: bool = True
    graphcore: bool = False

    def __str__(self) -> str:
        inputs = ", ".join("none" if a is None else f"{a.dtype}{list(a.shape)}" for a in self.arrays)
        return f"{self.name}({inputs}; {self.options}) in opset {self.opset}"


SHAPES = ((2, 3), (1,), (), (0, 3))
CUBE = some((2, 3, 4))
#: Distinct values, so that the places of the largest and smallest ones are clear.
GRID = (np.random.default_rng(5).permutation(216).reshape(2, 3, 6, 6) / 32).astype(np.float32)

UNARY: dict[str, Callable[..., Any]] = {
    "abs": torch.abs,
    "acos": torch.acos,
    "acosh": torch.acosh,
    "asin": torch.asin,
    "asinh": torch.asinh,
    "atan": torch.atan,
    "atanh": torch.atanh,
    "ceil": torch.ceil,
    "cos": torch.cos,
    "cosh": torch.cosh,
    "elu": functional.elu,
    "erf": torch.erf,
    "exp": torch.exp,
    "floor": torch.floor,
    "identity": lambda x: x * 1,
    "leakyrelu": functional.leaky_relu,
    "log": torch.log,
    "neg": torch.neg,
    "reciprocal": torch.reciprocal,
    "relu": torch.relu,
    "round": torch.round,
    "selu": torch.selu,
    "sigmoid": torch.sigmoid,
    "sign": torch.sign,
    "sin": torch.sin,
    "sinh": torch.sinh,
    "softplus": functional.softplus,
    "softsign": functional.softsign,
    "sqrt": torch.sqrt,
    "tan": torch.tan,
    "tanh": torch.tanh,
}
GRAPHCORE_UNARY: dict[str, Callable[..., Any]] = {
    "expm1": torch.expm1,
    "gelu": lambda x: functional.gelu(x, approximate="tanh"),
    "geluerf": functional.gelu,
    "log1p": torch.log1p,
    "nearbyint": torch.round,
    "nop": lambda x: x * 1,
    "round": torch.round,
    "swish": functional.silu,
}
#: Functions to be tested on both sides of 0.
BOTH_SIGNS = ("abs", "elu", "gelu", "geluerf", "leakyrelu", "relu", "selu", "sign", "softplus", "softsign", "swish")
BINARY: dict[str, Callable[..., Any]] = {
    "add": torch.add,
    "div": torch.div,
    "max": torch.maximum,
    "min": torch.minimum,
    "mul": torch.mul,
    "pow": torch.pow,
    "sub": torch.sub,
}
PAIRS = (
    ((2, 3), (2, 3)),
    ((2, 3), (3,)),
    ((3,), (2, 3)),
    ((2, 1), (1, 3)),
    ((), (2, 3)),
    ((1,), (1,)),
    ((0, 3), (3,)),
)


def elementwise() -> Iterator[Row]:
    for graphcore, table in ((False, UNARY), (True, GRAPHCORE_UNARY)):
        for (name, function), shape in itertools.product(table.items(), SHAPES):
            x = some(shape) * np.float32(4) - np.float32(2) if name in BOTH_SIGNS else some(shape)
            x = np.asarray(x + np.float32(name == "acosh"))
            yield Row(name, [x], {}, function, opset=11, graphcore=graphcore)
    x = some((2, 3)) - np.float32(0.5)
    zero = torch.zeros_like(torch.tensor(x))
    for name, options, function in (
        ("elu", {"alpha": 0.5}, lambda x: functional.elu(x, 0.5)),
        ("leakyrelu", {"alpha": 0.2}, lambda x: functional.leaky_relu(x, 0.2)),
        ("hardsigmoid", {"alpha": 0.3, "beta": 0.1}, lambda x: torch.clamp(0.3 * x + 0.1, 0, 1)),
        ("thresholdedrelu", {"alpha": 0.1}, lambda x: torch.where(x > 0.1, x, zero)),
        ("shrink", {"bias": 0.0, "lambd": 0.2}, lambda x: torch.where(abs(x) > 0.2, x, zero)),
        ("clip", {"max": 0.3, "min": -0.2}, lambda x: x.clamp(-0.2, 0.3)),
        ("clip", {}, lambda x: x * 1),
    ):
        yield Row(name, [x], options, function)
    for (name, function), (a, b) in itertools.product(BINARY.items(), PAIRS):
        arrays = [some(a) + np.float32(0.5), some(b, seed=2) + np.float32(0.25)]
        yield Row(name, [np.asarray(x) for x in arrays], {}, function, wrt=(0, 1))
    for name, function in (("atan2", torch.atan2), ("fmod", torch.fmod)):
        for a, b in PAIRS[:3]:
            arrays = [some(a) + np.float32(1), some(b, seed=2) + np.float32(0.3)]
            yield Row(name, list(arrays), {}, function, graphcore=True, wrt=(0, 1) if name == "atan2" else (0,))
    scaled = {"scale0": 0.5, "scale1": 0.25}
    yield Row("scaledadd", [x, x + 1], scaled, lambda a, b: a / 2 + b / 4, graphcore=True, wrt=(0, 1))
    yield Row("scale", [x], {"scale": 2.5}, lambda a: a * 2.5, graphcore=True)
    yield Row("tensorremap", [x], {"remap_type": 1}, lambda a: a * 1, graphcore=True)
    yield Row("prelu", [x, some((3,))], {}, lambda a, b: torch.where(a < 0, a * b, a), wrt=(0, 1))
    for count, (name, function) in itertools.product((1, 2, 3), (("sum", sum), ("mean", lambda v: sum(v) / len(v)))):
        arrays = [some((2, 3)), some((3,), seed=2), some((), seed=3)][:count]
        yield Row(name, list(arrays), {}, lambda *v, f=function: f(v) * 1, wrt=tuple(range(count)))
    truths = np.array([True, False, True])
    yield Row("where", [truths, some((2, 3)), some((3,), seed=2)], {}, torch.where, wrt=(1, 2))


def legacy() -> Iterator[Row]:
    """Opset 6: the second operand is broadcast if ``broadcast`` is set, from ``axis`` on."""
    for name in ("add", "div", "mul", "pow", "sub"):
        function = BINARY[name]
        yield Row(name, [CUBE, CUBE + 1], {}, function, opset=6, wrt=(0, 1))
        for axis, shape in ((0, (2,)), (1, (3,)), (1, (3, 4)), (2, (4,)), (None, (3, 4)), (None, ())):
            options = {"broadcast": 1} | ({} if axis is None else {"axis": axis})
            after = 0 if axis is None else 3 - axis - len(shape)

            def spread(a: Any, b: Any, f: Any = function, after: int = after) -> Any:
                return f(a, b.reshape([*b.shape, *[1] * after]))

            yield Row(name, [CUBE, some(shape, seed=2)], options, spread, opset=6, wrt=(0, 1))
    for name, function in (("equal", torch.eq), ("greater", torch.gt), ("less", torch.lt)):
        arrays = [np.round(CUBE, 1), np.round(some((3,), seed=2), 1)]
        options = {"broadcast": 1, "axis": 1}
        kind = np.int32 if name == "equal" else np.float32
        arrays = [(10 * array).astype(kind) for array in arrays]
        yield Row(name, arrays, options, lambda a, b, f=function: f(a, b[:, None]), opset=6, wrt=(), half=False)
    for name, function in (
        ("logical_and", torch.logical_and),
        ("logical_or", torch.logical_or),
        ("logical_xor", torch.logical_xor),
    ):
        arrays = [CUBE > 0.5, some((3,), seed=2) > 0.5]
        options = {"broadcast": 1, "axis": 1}
        yield Row(name, arrays, options, lambda a, b, f=function: f(a, b[:, None]), opset=6, wrt=(), half=False)
    arrays = [some((2, 3)), some((3, 4), seed=2), some((4,), seed=3)]
    yield Row("gemm", list(arrays), {"broadcast": 1}, lambda a, b, c: a @ b + c, opset=6, wrt=(0, 1, 2))


def _product_of(x: Any, axes: list[int], keep: bool) -> Any:
    for axis in sorted((axis % x.dim() for axis in axes), reverse=True):
        x = x.prod(axis, keepdim=keep)
    return x


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "l1": lambda x, axes, keep: x.abs().sum(axes, keepdim=keep),
    "l2": lambda x, axes, keep: (x * x).sum(axes, keepdim=keep).sqrt(),
    "logsum": lambda x, axes, keep: x.sum(axes, keepdim=keep).log(),
    "logsumexp": lambda x, axes, keep: x.logsumexp(axes, keepdim=keep),
    "max": lambda x, axes, keep: x.amax(axes, keepdim=keep),
    "mean": lambda x, axes, keep: x.mean(axes, keepdim=keep),
    "min": lambda x, axes, keep: x.amin(axes, keepdim=keep),
    "prod": _product_of,
    "sum": lambda x, axes, keep: x.sum(axes, keepdim=keep),
    "sumsquare": lambda x, axes, keep: (x * x).sum(axes, keepdim=keep),
}
#: A reduction over no axes is the function of each element.
OF_NOTHING: dict[str, Callable[..., Any]] = {
    "l1": torch.abs,
    "l2": lambda x: (x * x).sqrt(),
    "logsum": torch.log,
    "sumsquare": lambda x: x * x,
}


def along_axes() -> Iterator[Row]:
    yield from _reduced()
    yield from _softmaxes()
    for axis in (0, 1, -1, -3):
        yield from _at_axis(axis)
    yield Row("topk", [CUBE], {"k": 2, "axis": 1}, lambda x: x.topk(2, 1)[0], opset=9)
    yield from _scattered()
    yield Row("sort", [CUBE], {"stable": 1}, lambda x: x.sort(-1)[0], graphcore=True, wrt=())
    yield Row("reducemedian", [GRID], {"axes": [-1], "keepdims": 0}, lambda x: x.median(-1)[0], graphcore=True)
    yield from _remainders()


def _reduced() -> Iterator[Row]:
    for (name, function), axes, keep in itertools.product(
        REDUCTIONS.items(), (None, [0], [-1], [0, 2], [-1, -2]), (0, 1)
    ):

        def reduced(x: Any, f: Any = function, axes: Any = axes, keep: int = keep) -> Any:
            return f(x, [0, 1, 2] if axes is None else axes, bool(keep))

        yield Row(f"reduce{name}", [CUBE], {"axes": axes, "keepdims": keep}, reduced)
    for name, keep in itertools.product(REDUCTIONS, (0, 1)):
        function = OF_NOTHING.get(name, lambda x: x * 1)
        yield Row(f"reduce{name}", [CUBE], {"axes": [], "keepdims": keep}, function)


def _softmaxes() -> Iterator[Row]:
    for axis in (0, 1, 2):
        rows = int(np.prod(CUBE.shape[:axis]))

        def flat(x: Any, f: Any, rows: int = rows) -> Any:
            return f(x.reshape(rows, -1), 1).reshape(x.shape)

        yield Row("softmax", [CUBE], {"axis": axis}, lambda x, g=flat: g(x, torch.softmax))
        yield Row("logsoftmax", [CUBE], {"axis": axis}, lambda x, g=flat: g(x, torch.log_softmax))


def _at_axis(axis: int) -> Iterator[Row]:
    yield Row("concat", [CUBE, CUBE + 1], {"axis": axis}, lambda a, b, i=axis: torch.cat([a, b], i), 11, (0, 1))
    yield Row(
        "gather",
        [CUBE, np.array([[1, 0], [0, 1]], np.int32)],
        {"axis": axis},
        lambda x, at, i=axis: torch.stack([torch.stack([x.select(i, n) for n in row], i % 3) for row in at], i % 3),
    )
    options = {"axis": axis, "largest": 0, "sorted": 1}
    yield Row(
        "topk",
        [CUBE, ints(2)],
        options,
        lambda x, k, i=axis: x.topk(2, i, largest=False)[0],
        11,
        known=(1,),
    )
    yield Row(
        "cumsum",
        [CUBE, np.array(axis, np.int32)],
        {"exclusive": 0, "reverse": 1},
        lambda x, _, i=axis: x.flip(i).cumsum(i).flip(i),
        opset=11,
        known=(1,),
    )
    yield Row("gatherelements", [CUBE, np.zeros(CUBE.shape, np.int32)], {"axis": axis}, _first_of(axis), 11)


def _scattered() -> Iterator[Row]:
    for axis in (0, 1, -2):
        places = np.array([[1, 0, 2, 1]], np.int32) if axis == 0 else np.array([[1], [0], [2]], np.int32)
        data, parts = some((3, 4)), some(places.shape, seed=2)
        for name, opset in (("scatter", 9), ("scatterelements", 11)):
            yield Row(
                name,
                [data, places, parts],
                {"axis": axis},
                lambda x, at, u, i=axis: x.scatter(i, at.long(), u),
                opset,
                (0, 2),
            )


def _remainders() -> Iterator[Row]:
    for number in (0, 1):
        arrays = [some((2, 3)) * np.float32(4) - np.float32(2), some((3,), seed=2) + np.float32(0.5)]
        yield (
            Row("mod", list(arrays), {"fmod": 1}, torch.fmod, wrt=(0,))
            if number
            else Row("remainder", list(arrays), {}, torch.remainder, graphcore=True, wrt=())
        )


def _first_of(axis: int) -> Callable[..., Any]:
    return lambda x, at: x.gather(axis, at.long())


def moved() -> Iterator[Row]:
    yield Row("transpose", [CUBE], {}, lambda x: x.permute(2, 1, 0))
    yield Row("transpose", [CUBE], {"perm": [1, 2, 0]}, lambda x: x.permute(1, 2, 0))
    yield Row("flatten", [CUBE], {"axis": 2}, lambda x: x.reshape(6, 4))
    yield Row("squeeze", [some((1, 3, 1))], {"axes": [2]}, lambda x: x.reshape(1, 3))
    yield Row("unsqueeze", [CUBE], {"axes": [0, 2]}, lambda x: x.reshape(1, 2, 1, 3, 4))
    yield Row("split", [CUBE], {"num_outputs": 2, "axis": 2, "split": [1, 3]}, lambda x: x[..., :1])
    options: dict[str, Any] = {"ends": [3, 2], "starts": [1, 0], "axes": [1, 2]}
    yield Row("slice", [CUBE], options, lambda x: x[:, 1:3, :2], opset=9)
    bounds = [ints(-1), ints(-9), ints(-1), ints(-2)]
    yield Row("slice", [CUBE, *bounds], {}, lambda x, *_: x.flip(2)[..., ::2], known=(1, 2, 3, 4))
    yield Row("expand", [some((2, 1)), ints(3, 2, 4)], {}, lambda x, _: x.expand(3, 2, 4), known=(1,))
    yield Row("tile", [some((2, 3)), ints(2, 3)], {}, lambda x, _: x.repeat(2, 3), known=(1,))
    constant = {"pads": [1, 0, 0, 0, 1, 2], "mode": "constant", "value": 2.0}
    yield Row("pad", [CUBE], constant, lambda x: functional.pad(x, (0, 2, 0, 1, 1, 0), value=2.0))
    for mode, name in (("reflect", "reflect"), ("edge", "replicate")):
        padded = {"pads": [0, 0, 1, 0, 0, 2], "mode": mode}
        yield Row("pad", [CUBE], padded, lambda x, name=name: functional.pad(x, (1, 2), mode=name))
    yield Row("pad", [CUBE], {"pads": [0, -1, 0, 0, 0, -2]}, lambda x: x[:, 1:, :2])
    yield Row("depthtospace", [some((1, 8, 2, 3))], {"blocksize": 2, "mode": "CRD"}, _shuffled, opset=11)
    yield Row("spacetodepth", [some((1, 2, 4, 6))], {"blocksize": 2}, _unshuffled)
    yield Row("reverse", [CUBE], {"dimensions": [0, 2]}, lambda x: x.flip([0, 2]), graphcore=True)
    yield Row("subsample", [CUBE], {"strides": [2, 1, 2]}, lambda x: x[::2, :, ::2], graphcore=True)
    yield Row("reshape", [CUBE], {"shape": [4, 6]}, lambda x: x.reshape(4, 6), graphcore=True)
    options = {"ends": [2], "starts": [1], "axes": [1]}
    yield Row("slice", [CUBE], options, lambda x: x[:, 1:2], graphcore=True)
    at, piece = np.array([1, 2], np.uint32), some((2, 1, 2), seed=2)
    window: dict[str, Any] = {"axes": [1, 2], "sizes": [1, 2]}

    def written(x: Any, _: Any, piece: Any) -> Any:
        return torch.cat([x[:, :1], torch.cat([x[:, 1:2, :2], piece], 2), x[:, 2:]], 1)

    yield Row("dynamicslice", [CUBE, at], window | {"noOverlap": 1}, lambda x, _: x[:, 1:2, 2:4], graphcore=True)
    yield Row("dynamicupdate", [CUBE, at, piece], window | {"noOverlap": 0}, written, graphcore=True, wrt=(0, 2))
    added = lambda x, i, piece: written(x, i, x[:, 1:2, 2:4] + piece)  # noqa: E731
    yield Row("dynamicadd", [CUBE, at, piece], window, added, graphcore=True, wrt=(0, 2))
    cleared = lambda x, i: written(x, i, torch.zeros_like(x[:, 1:2, 2:4]))  # noqa: E731
    yield Row("dynamiczero", [CUBE, at], window, cleared, graphcore=True)
    grouped = [some((2, 4, 3)), np.array([[0, 2], [3, 3]], np.int32)]
    stacked = lambda x, at: torch.stack([x[0][at[0].long()], x[1][at[1].long()]])  # noqa: E731
    yield Row("groupedgather", list(grouped), {"axis": 1, "group_size": 2}, stacked, graphcore=True)


def _shuffled(x: Any) -> Any:
    return functional.pixel_shuffle(x, 2)


def _unshuffled(x: Any) -> Any:
    return x.reshape(1, 2, 2, 2, 3, 2).permute(0, 3, 5, 1, 2, 4).reshape(1, 8, 2, 3)


def products() -> Iterator[Row]:
    for a, b in (((2, 3), (3, 4)), ((3,), (3,)), ((5, 2, 3), (3, 4)), ((4, 1, 2, 3), (5, 3, 2)), ((2, 4, 3), (3,))):
        yield Row("matmul", [some(a), some(b, seed=2)], {}, torch.matmul, wrt=(0, 1))
    for left, right in itertools.product((0, 1), (0, 1)):
        shapes = (3, 2) if left else (2, 3), (4, 3) if right else (3, 4)
        options = {"alpha": 0.5, "beta": 2.0, "transA": left, "transB": right}

        def product(a: Any, b: Any, c: Any, left: int = left, right: int = right) -> Any:
            return 0.5 * ((a.T if left else a) @ (b.T if right else b)) + 2 * c

        arrays = [some(shapes[0]), some(shapes[1], seed=2), some((4,), seed=3)]
        yield Row("gemm", list(arrays), options, product, wrt=(0, 1, 2))


def windows() -> Iterator[Row]:
    x, w, bias = some((1, 4, 7, 6)), some((6, 4, 3, 3), seed=2), some((6,), seed=3)
    for opset in (6, 10, 11):
        yield Row("conv", [x, w, bias], {}, functional.conv2d, opset, (0, 1, 2))
    for options, torch_options in (
        ({"strides": [2, 1], "pads": [1, 2, 1, 2]}, {"stride": (2, 1), "padding": (1, 2)}),
        ({"dilations": [2, 1], "kernel_shape": [3, 3]}, {"dilation": (2, 1)}),
    ):
        yield Row("conv", [x, w], options, lambda a, b, o=torch_options: functional.conv2d(a, b, **o), wrt=(0, 1))
    yield Row("conv", [x, w[:, :2]], {"group": 2}, lambda a, b: functional.conv2d(a, b, groups=2), wrt=(0, 1))
    uneven = lambda a, b: functional.conv2d(functional.pad(a, (0, 2, 1, 0)), b)  # noqa: E731
    yield Row("conv", [x, w], {"pads": [1, 0, 0, 2]}, uneven, wrt=(0, 1))
    line, volume = some((2, 3, 8)), some((1, 2, 4, 4, 4))
    padded = lambda a, b: functional.conv1d(a, b, padding=1)  # noqa: E731
    yield Row("conv", [line, some((4, 3, 3), seed=2)], {"pads": [1, 1]}, padded, wrt=(0, 1))
    yield Row("conv", [volume, some((3, 2, 2, 2, 2), seed=2)], {}, functional.conv3d, wrt=(0, 1))
    x, w = some((1, 4, 4, 4)), some((4, 3, 3, 3), seed=2)
    yield Row("convtranspose", [x, w], {}, functional.conv_transpose2d, wrt=(0, 1))
    options = {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1], "kernel_shape": [3, 3]}
    wide = lambda a, b: functional.conv_transpose2d(a, b, stride=2, padding=1, output_padding=1)  # noqa: E731
    yield Row("convtranspose", [x, w], options, wide, wrt=(0, 1))
    yield Row(
        "convtranspose", [x, w], {"strides": [2, 2], "output_shape": [8, 8], "pads": [0] * 4}, _cropped, wrt=(0, 1)
    )
    grouped = lambda a, b: functional.conv_transpose2d(a, b, groups=2)  # noqa: E731
    yield Row("convtranspose", [x, w], {"group": 2, "dilations": [1, 1]}, grouped, wrt=(0, 1))
    for opset, options in (
        (6, {"kernel_shape": [2, 3], "strides": [2, 3]}),
        (8, {"num_outputs": 1, "kernel_shape": [2, 3], "strides": [2, 3], "storage_order": 0}),
        (10, {"num_outputs": 1, "kernel_shape": [2, 3], "strides": [2, 3], "dilations": [1, 1]}),
    ):
        yield Row("maxpool", [GRID], options, lambda a: functional.max_pool2d(a, (2, 3), (2, 3)), opset)
    around = {"num_outputs": 1, "kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    yield Row("maxpool", [GRID], around, lambda a: functional.max_pool2d(a, 3, 1, 1))
    up = {"num_outputs": 1, "kernel_shape": [4, 4], "strides": [3, 3], "ceil_mode": 1}
    yield Row("maxpool", [GRID], up, lambda a: functional.max_pool2d(a, 4, 3, ceil_mode=True))
    for opset in (6, 7, 10):
        options = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
        mean = lambda a: functional.avg_pool2d(a, 3, 2, 1, count_include_pad=False)  # noqa: E731
        yield Row("averagepool", [GRID], options, mean, opset)
    yield Row("globalaveragepool", [GRID], {}, lambda a: a.mean((2, 3), keepdim=True))
    yield Row("globalmaxpool", [GRID], {}, lambda a: a.amax((2, 3), keepdim=True))


def _cropped(a: Any, b: Any) -> Any:
    """Of the 9 rows and columns the last one is cut off."""
    return functional.conv_transpose2d(a, b, stride=2)[..., :8, :8]


def normalisations() -> Iterator[Row]:
    scale, bias = some((3,), seed=2), some((3,), seed=3)
    means = lambda x, s, b: functional.instance_norm(x, weight=s, bias=b, eps=1e-3)  # noqa: E731
    yield Row("instancenormalization", [GRID, scale, bias], {"epsilon": 1e-3}, means, wrt=(0, 1, 2))
    local = {"size": 3, "alpha": 0.01, "beta": 0.5, "bias": 2.0}
    near = lambda x: functional.local_response_norm(x, 3, alpha=0.01, beta=0.5, k=2.0)  # noqa: E731
    yield Row("lrn", [some((1, 6, 3, 3))], local, near)
    x, many = some((2, 4, 3)), [some((4,), seed=2), some((4,), seed=3)]
    groups = lambda x, s, b: functional.group_norm(x, 2, s, b, 1e-4)  # noqa: E731
    yield Row(
        "groupnormalization", [x, *many], {"num_groups": 2, "epsilon": 1e-4}, groups, graphcore=True, wrt=(0, 1, 2)
    )
    statistics = [some((3,), seed=4), some((3,), seed=5)]
    frozen = lambda x, s, b, m, v: functional.batch_norm(x, m, v, s, b, eps=1e-3)  # noqa: E731
    for opset, options in (
        (6, {"is_test": 1, "momentum": 0.5, "spatial": 1}),
        (8, {"momentum": 0.5, "spatial": 1}),
        (9, {"momentum": 0.5}),
    ):
        attributes = {"num_outputs": 1, "epsilon": 1e-3, **options}
        yield Row("batchnormalization", [GRID, scale, bias, *statistics], attributes, frozen, opset, wrt=())
    yield Row(
        "batchnormalization",
        [GRID, scale, bias, *statistics],
        {"num_outputs": 1, "epsilon": 1e-3, "momentum": 0.5},
        frozen,
        graphcore=True,
        wrt=(),
    )


TABLES: dict[str, Callable[[], Iterator[Row]]] = {
    "elementwise": elementwise,
    "legacy": legacy,
    "along axes": along_axes,
    "moved": moved,
    "products": products,
    "windows": windows,
    "normalisations": normalisations,
}
