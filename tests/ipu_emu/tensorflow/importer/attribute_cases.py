"""Attribute cases: raw ops with attributes off their defaults that the drawn cases do not have.

A case is compared with its reference, another call of TensorFlow on the CPU, whose kernels take images with channels
last only; None stands for the same call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

#: (call of raw ops on the device, the same on the CPU or None, operands).
AttributeCase = tuple[Callable[..., Any], Callable[..., Any] | None, tuple[Any, ...]]
RANDOM = np.random.default_rng(4)


def some(*shape: int) -> Any:
    return RANDOM.normal(size=shape).astype(np.float32)


def first(x: Any) -> Any:
    """An array with channels last as one with channels first."""
    return np.moveaxis(np.asarray(x), -1, 1)


def last(raw: Any, x: Any) -> Any:
    """A tensor with channels first as one with channels last."""
    rank = len(x.shape)
    return raw.Transpose(x=x, perm=[0, *range(2, rank), 1])


def widened(kernel: Any) -> Any:
    """A kernel with a row of zeros between its rows, as a dilation of 2 has."""
    wide = np.zeros((2 * kernel.shape[0] - 1, *kernel.shape[1:]), np.float32)
    wide[::2] = kernel
    return wide


def gradient(function: Callable[[Any], Any], shape: tuple[int, ...], upstream: Any) -> Any:
    """The gradient of a linear function: the products of ``upstream`` with the results for each unit vector."""
    units = np.eye(int(np.prod(shape)), dtype=np.float32).reshape(-1, *shape)
    return np.array([(np.asarray(function(unit)) * upstream).sum() for unit in units]).reshape(shape)


IMAGE, VOLUME = some(1, 5, 4, 2), some(1, 4, 3, 3, 2)
KERNEL, SOLID, DEPTHWISE = some(2, 2, 2, 3), some(2, 2, 2, 2, 3), some(2, 2, 2, 2)
PADS = [0, 0, 1, 0, 0, 2, 0, 0]
SAME, EXPLICIT, DILATED, DEEP, DEEP_SAME = (
    {"strides": [1] * rank, "padding": padding, **options}
    for rank, padding, options in (
        (4, "SAME", {}),
        (4, "EXPLICIT", {"explicit_paddings": PADS}),
        (4, "VALID", {"dilations": [1, 2, 1, 1]}),
        (5, "VALID", {"dilations": [1, 2, 1, 1, 1]}),
        (5, "SAME", {}),
    )
)

#: Convolutions with their gradients for input and filter.
CONVOLUTIONS = (
    ("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", IMAGE, KERNEL),
    ("DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter", IMAGE,
     DEPTHWISE),
    ("Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2", VOLUME, SOLID),
)  # fmt: skip


def convolutions() -> Iterator[tuple[tuple[str, str], AttributeCase]]:
    for *ops, image, kernel in CONVOLUTIONS:
        deep = image.ndim == 5
        yield from of_convolution(ops, image, kernel, "dilations", DEEP if deep else DILATED)
        yield from of_convolution(ops, image, kernel, "data_format", DEEP_SAME if deep else SAME)
        if not deep:
            yield from of_convolution(ops, image, kernel, "explicit_paddings", EXPLICIT)


def of_convolution(
    ops: Sequence[str], image: Any, kernel: Any, name: str, options: dict[str, Any]
) -> Iterator[tuple[tuple[str, str], AttributeCase]]:
    """A convolution and its gradients; with a data format, the device has the channels first."""
    moves = name == "data_format"
    own = {**options, "data_format": "NCHW" if image.ndim == 4 else "NCDHW"} if moves else options
    upstream = some(*shape_of(image, kernel, ops[0], options))
    x, y = (first(array) if moves else array for array in (image, upstream))

    def moved(raw: Any, result: Any) -> Any:
        return last(raw, result) if moves else result

    def plain(raw: Any, x: Any, w: Any) -> Any:
        known = {key: value for key, value in options.items() if key != "dilations"}
        return getattr(raw, ops[0])(input=x, filter=widened(w) if name == "dilations" else w, **known)

    yield (
        (ops[0], name),
        (
            lambda raw, x, w: moved(raw, getattr(raw, ops[0])(input=x, filter=w, **own)),
            lambda raw, x, w: plain(raw, image, w),
            (x, kernel),
        ),
    )
    sizes = list(x.shape)
    yield (
        (ops[1], name),
        (
            lambda raw, y: moved(raw, getattr(raw, ops[1])(input_sizes=sizes, filter=kernel, out_backprop=y, **own)),
            lambda raw, y: gradient(lambda unit: plain(raw, unit, kernel), image.shape, upstream),
            (y,),
        ),
    )
    yield (
        (ops[2], name),
        (
            lambda raw, x, y: getattr(raw, ops[2])(input=x, filter_sizes=list(kernel.shape), out_backprop=y, **own),
            lambda raw, x, y: gradient(lambda unit: plain(raw, image, unit), kernel.shape, upstream),
            (x, y),
        ),
    )


def shape_of(image: Any, kernel: Any, forward: str, options: Any) -> tuple[int, ...]:
    """The shape of a convolution's result."""
    sizes, paddings = [], options.get("explicit_paddings", [0] * 8)
    for axis in range(1, image.ndim - 1):
        dilation = options.get("dilations", [1] * image.ndim)[axis]
        window = dilation * (kernel.shape[axis - 1] - 1)
        sizes.append(
            image.shape[axis] - (0 if options["padding"] == "SAME" else window - sum(paddings[2 * axis :][:2]))
        )
    channels = kernel.shape[-1] * (kernel.shape[-2] if forward.startswith("Depthwise") else 1)
    return (image.shape[0], *sizes, channels)


def pools() -> Iterator[tuple[tuple[str, str], AttributeCase]]:
    for kind, image, form in (("", IMAGE, "NCHW"), ("3D", VOLUME, "NCDHW")):
        rank, x = image.ndim, first(image)
        window = {"ksize": [1, *[2] * (rank - 2), 1], "strides": [1] * rank, "padding": "SAME"}
        own = {**window, "ksize": [1, 1, *[2] * (rank - 2)], "data_format": form}
        y = some(*image.shape)
        for op in ("AvgPool", "MaxPool"):
            name, argument = f"{op}{kind}", "value" if op == "AvgPool" and not kind else "input"
            yield (
                (name, "data_format"),
                (
                    lambda raw, x, n=name, a=argument, o=own: last(raw, getattr(raw, n)(**{a: x}, **o)),
                    lambda raw, x, n=name, a=argument, i=image, w=window: getattr(raw, n)(**{a: i}, **w),
                    (x,),
                ),
            )
        yield (
            (f"AvgPool{kind}Grad", "data_format"),
            (
                lambda raw, g, k=kind, o=own, s=x.shape: last(
                    raw, getattr(raw, f"AvgPool{k}Grad")(orig_input_shape=list(s), grad=g, **o)
                ),
                lambda raw, g, k=kind, w=window, i=image, y=y: getattr(raw, f"AvgPool{k}Grad")(
                    orig_input_shape=list(i.shape), grad=y, **w
                ),
                (first(y),),
            ),
        )
        yield (
            (f"MaxPool{kind}Grad", "data_format"),
            (
                lambda raw, x, g, k=kind, o=own: last(
                    raw,
                    getattr(raw, f"MaxPool{k}Grad")(
                        orig_input=x, orig_output=getattr(raw, f"MaxPool{k}")(input=x, **o), grad=g, **o
                    ),
                ),
                lambda raw, x, g, k=kind, w=window, i=image, y=y: getattr(raw, f"MaxPool{k}Grad")(
                    orig_input=i, orig_output=getattr(raw, f"MaxPool{k}")(input=i, **w), grad=y, **w
                ),
                (x, first(y)),
            ),
        )
    padded = {"ksize": [1, 2, 2, 1], "strides": [1] * 4, "padding": "EXPLICIT", "explicit_paddings": PADS[:]}
    padded["explicit_paddings"] = [0, 0, 1, 0, 0, 1, 0, 0]
    yield ("MaxPool", "explicit_paddings"), (lambda raw, x: raw.MaxPool(input=x, **padded), None, (IMAGE,))
    yield (
        ("MaxPoolGrad", "explicit_paddings"),
        (
            lambda raw, x, g: raw.MaxPoolGrad(
                orig_input=x, orig_output=raw.MaxPool(input=x, **padded), grad=g, **padded
            ),
            None,
            (IMAGE, some(*IMAGE.shape)),
        ),
    )


def of_images() -> Iterator[tuple[tuple[str, str], AttributeCase]]:
    x, bias = first(IMAGE), some(2)
    yield (
        ("BiasAdd", "data_format"),
        (
            lambda raw, x, b: last(raw, raw.BiasAdd(value=x, bias=b, data_format="NCHW")),
            lambda raw, x, b: raw.BiasAdd(value=IMAGE, bias=b),
            (x, bias),
        ),
    )
    yield (
        ("BiasAddGrad", "data_format"),
        (
            lambda raw, x: raw.BiasAddGrad(out_backprop=x, data_format="NCHW"),
            lambda raw, x: raw.BiasAddGrad(out_backprop=IMAGE),
            (x,),
        ),
    )
    scale, offset, empty = some(2), some(2), np.zeros(0, np.float32)
    moments = np.array([0.1, 0.2], np.float32), np.array([1.0, 2.0], np.float32)
    for version in ("", "V2"):
        name = f"FusedBatchNorm{version}"
        yield (
            (name, "data_format"),
            (
                lambda raw, x, n=name: last(
                    raw,
                    getattr(raw, n)(x=x, scale=scale, offset=offset, mean=empty, variance=empty, data_format="NCHW")[
                        0
                    ],
                ),
                lambda raw, x, n=name: getattr(raw, n)(
                    x=IMAGE, scale=scale, offset=offset, mean=empty, variance=empty
                )[0],
                (x,),
            ),
        )
        yield (
            (name, "exponential_avg_factor"),
            (
                lambda raw, x, n=name: raw.Pack(
                    values=getattr(raw, n)(
                        x=x,
                        scale=scale,
                        offset=offset,
                        mean=moments[0],
                        variance=moments[1],
                        exponential_avg_factor=0.3,
                    )[1:3]
                ),
                None,
                (IMAGE,),
            ),
        )
    for version in ("", "V2", "V3"):
        name = f"FusedBatchNormGrad{version}"
        options = {"scale": scale, "reserve_space_1": moments[0], "reserve_space_2": moments[1]}
        if version == "V3":
            options["reserve_space_3"] = empty
        y = some(*IMAGE.shape)
        yield (
            (name, "is_training"),
            (
                lambda raw, y, x, n=name, o=options: getattr(raw, n)(y_backprop=y, x=x, is_training=False, **o)[0],
                None,
                (y, IMAGE),
            ),
        )
        if version != "V3":  # as the forward op reserves its statistics
            forward = f"FusedBatchNorm{version}"

            def both(raw: Any, y: Any, x: Any, n: str = name, f: str = forward, **form: Any) -> Any:
                operands = {"x": x, "scale": scale, "offset": offset, "mean": empty, "variance": empty, **form}
                spaces = getattr(raw, f)(**operands)[3:5]
                reserve = dict(zip(("reserve_space_1", "reserve_space_2"), spaces, strict=True))
                return getattr(raw, n)(y_backprop=y, x=x, scale=scale, **reserve, **form)[0]

            yield (
                (name, "data_format"),
                (
                    lambda raw, y, x, b=both: last(raw, b(raw, y, x, data_format="NCHW")),
                    lambda raw, y, x, b=both, up=y: b(raw, up, IMAGE),
                    (first(y), x),
                ),
            )


def of_arrays() -> Iterator[tuple[tuple[str, str], AttributeCase]]:
    x = some(3, 4, 2)
    bounds = {"begin": [0, 1, 0, 0], "end": [2, 3, 0, 1], "strides": [1, 1, 1, 1]}
    for name, masks in (("ellipsis_mask", {"ellipsis_mask": 4}), ("new_axis_mask", {"new_axis_mask": 2})):
        own = {key: value[: 3 if name == "ellipsis_mask" else 4] for key, value in bounds.items()}
        yield ("StridedSlice", name), (lambda raw, x, o=own, m=masks: raw.StridedSlice(input=x, **o, **m), None, (x,))
        upstream = np.zeros(x.shape, np.float32)
        selected = {"ellipsis_mask": upstream[0:2, 1:3, :], "new_axis_mask": upstream[0:2, None, 0:0, 0:1]}[name]
        yield (
            ("StridedSliceGrad", name),
            (
                lambda raw, g, o=own, m=masks: raw.StridedSliceGrad(shape=[3, 4, 2], dy=g, **o, **m),
                None,
                (some(*selected.shape),),
            ),
        )
    yield ("Squeeze", "squeeze_dims"), (lambda raw, x: raw.Squeeze(input=x, axis=[1]), None, (some(1, 1, 3),))
    yield (
        ("LeakyReluGrad", "alpha"),
        (
            lambda raw, g, x: raw.LeakyReluGrad(gradients=g, features=x, alpha=0.7),
            None,
            (some(4), some(4)),
        ),
    )


CASES: dict[tuple[str, str], AttributeCase] = dict(
    case for family in (convolutions, pools, of_images, of_arrays) for case in family()
)
_INDICES, _UPDATES = np.array([[0], [9]], np.int32), some(2)
_IGNORE = {"bad_indices_policy": "IGNORE"}
#: Calls that are refused, with their operands.
REFUSED: dict[tuple[str, str], tuple[Callable[..., Any], tuple[Any, ...]]] = {
    ("Cast", "Truncate"): (lambda raw, x: raw.Cast(x=x, DstT=np.float16, Truncate=True), (some(3),)),
    **{
        (op, "data_format"): (
            lambda raw, x, n=op: getattr(raw, n)(input=x, block_size=2, data_format="NCHW"), (some(1, 4, 4, 4),),
        )
        for op in ("DepthToSpace", "SpaceToDepth")
    },
    ("GatherNd", "bad_indices_policy"): (
        lambda raw, x, i: raw.GatherNd(params=x, indices=i, **_IGNORE), (some(4), _INDICES),
    ),
    ("ScatterNd", "bad_indices_policy"): (
        lambda raw, i, u: raw.ScatterNd(indices=i, updates=u, shape=[4], **_IGNORE), (_INDICES, _UPDATES),
    ),
    **{
        (f"TensorScatter{op}", "bad_indices_policy"): (
            lambda raw, x, i, u, n=f"TensorScatter{op}": getattr(raw, n)(tensor=x, indices=i, updates=u, **_IGNORE),
            (some(4), _INDICES, _UPDATES),
        )
        for op in ("Add", "Sub", "Update")
    },
}  # fmt: skip
