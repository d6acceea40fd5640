"""Window cases: calls of convolutions, poolings and batch normalisation, on images and volumes that are drawn."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ipu_emu.tensorflow.importer.case_forms import Case, numbers, shape_of


def image(random: Any, channels: int | None = None) -> Any:
    n, h, w = (int(random.integers(1, 4)), *(int(size) for size in random.integers(4, 8, 2)))
    return numbers(random, (n, h, w, channels or int(random.integers(1, 4))))


def _settings(random: Any, *, dilated: bool = True, square: bool = False) -> dict[str, Any]:
    stride = int(random.integers(1, 3))
    other = stride if square else int(random.integers(1, 3))
    dilation = int(random.integers(1, 3)) if dilated and stride == other == 1 else 1
    return {
        "strides": [1, stride, other, 1],
        "padding": ("SAME", "VALID")[int(random.integers(0, 2))],
        "dilations": [1, dilation, dilation, 1],
    }


def convolution(what: str, *, deep: bool = False) -> Case:
    """A convolution, or its gradient by the input or by the filter; shapes of results come from TensorFlow."""

    def case(name: str, random: Any) -> Any:
        dilated = not deep and what == "forward"  # TensorFlow has no kernels for the gradients of dilated ones
        x, settings = image(random), _settings(random, dilated=dilated, square=deep)
        kernel = [int(size) for size in random.integers(1, 4, 2)]
        w = numbers(random, (*kernel, x.shape[3], int(random.integers(1, 4))))
        if what == "forward":
            return [x, w], lambda raw, a, b: getattr(raw, name)(input=a, filter=b, **settings)
        from tensorflow import raw_ops

        forward = "DepthwiseConv2dNative" if deep else "Conv2D"
        from tensorflow.python.eager import context

        with context.eager_mode():
            g = numbers(random, tuple(getattr(raw_ops, forward)(input=x, filter=w, **settings).shape))
        if what == "input":
            return [w, g], lambda raw, b, c: getattr(raw, name)(
                input_sizes=np.array(x.shape, np.int32), filter=b, out_backprop=c, **settings
            )
        return [x, g], lambda raw, a, c: getattr(raw, name)(
            input=a, filter_sizes=np.array(w.shape, np.int32), out_backprop=c, **settings
        )

    return case


def pool(what: str) -> Case:
    def case(name: str, random: Any) -> Any:
        from tensorflow import raw_ops
        from tensorflow.python.eager import context

        x, settings = image(random), _settings(random, dilated=False)
        settings.pop("dilations")
        settings["ksize"] = [1, *(int(size) for size in random.integers(1, 4, 2)), 1]
        forward = "MaxPool" if "Max" in name else "AvgPool"
        argument = {"MaxPool": "input", "AvgPool": "value"}[forward]
        if what == "forward":
            return [x], lambda raw, a: getattr(raw, name)(**{argument: a}, **settings)
        with context.eager_mode():
            y = np.array(getattr(raw_ops, forward)(**{argument: x}, **settings))
        g = numbers(random, y.shape)
        if forward == "MaxPool":
            return [x, y, g], lambda raw, a, b, c: raw.MaxPoolGrad(orig_input=a, orig_output=b, grad=c, **settings)
        return [g], lambda raw, c: raw.AvgPoolGrad(orig_input_shape=np.array(x.shape, np.int32), grad=c, **settings)

    return case


def pool_volume(name: str, random: Any) -> Any:
    x = numbers(random, (2, *(int(size) for size in random.integers(3, 7, 3)), 2))
    settings = {
        "ksize": [1, *(int(size) for size in random.integers(1, 4, 3)), 1],
        "strides": [1, *(int(size) for size in random.integers(1, 3, 3)), 1],
        "padding": ("SAME", "VALID")[int(random.integers(0, 2))],
    }
    return [x], lambda raw, a: getattr(raw, name)(input=a, **settings)


def volume(name: str, random: Any) -> Any:
    """A gradient of a convolution or a pooling over three axes."""
    from tensorflow import raw_ops
    from tensorflow.python.eager import context

    x = numbers(random, (2, *(int(size) for size in random.integers(3, 7, 3)), int(random.integers(1, 4))))
    kernel = [int(size) for size in random.integers(1, 4, 3)]
    settings: dict[str, Any] = {
        "strides": [1, *(int(size) for size in random.integers(1, 3, 3)), 1],
        "padding": ("SAME", "VALID")[int(random.integers(0, 2))],
    }
    shape = np.array(x.shape, np.int32)
    with context.eager_mode():
        if name.startswith("Conv"):
            w = numbers(random, (*kernel, x.shape[-1], 2))
            g = numbers(random, raw_ops.Conv3D(input=x, filter=w, **settings).shape)
            if "Input" in name:
                return [w, g], lambda raw, b, c: raw.Conv3DBackpropInputV2(
                    input_sizes=shape, filter=b, out_backprop=c, **settings
                )
            sizes = np.array(w.shape, np.int32)
            return [x, g], lambda raw, a, c: raw.Conv3DBackpropFilterV2(
                input=a, filter_sizes=sizes, out_backprop=c, **settings
            )
        settings["ksize"] = [1, *kernel, 1]
        y = np.array(getattr(raw_ops, name.removesuffix("Grad"))(input=x, **settings))
    g = numbers(random, y.shape)
    if name.startswith("Max"):
        return [x, y, g], lambda raw, a, b, c: raw.MaxPool3DGrad(orig_input=a, orig_output=b, grad=c, **settings)
    return [g], lambda raw, c: raw.AvgPool3DGrad(orig_input_shape=shape, grad=c, **settings)


def _image_or_volume(name: str, random: Any) -> tuple[Any, dict[str, Any]]:
    """A batch of images; for the third version of an op of volumes at times."""
    if name.endswith("V3") and random.integers(0, 2):
        return numbers(random, shape_of(random, rank=5)), {"data_format": "NDHWC"}
    return image(random), {}


def batch_norm(name: str, random: Any) -> Any:
    x, form = _image_or_volume(name, random)
    channels = x.shape[-1]
    scale, offset, mean = (numbers(random, (channels,)) for _ in range(3))
    variance = numbers(random, (channels,), low=0.5, high=2.0)
    training = bool(random.integers(0, 2))
    more: dict[str, Any] = {"epsilon": 0.01, "is_training": training, **form}
    if name.endswith("V3") and training and random.integers(0, 2):
        more["exponential_avg_factor"] = 0.25
    if training and "exponential_avg_factor" not in more:
        mean, variance = np.zeros(0, np.float32), np.zeros(0, np.float32)
    return [x, scale, offset, mean, variance], lambda raw, *v: list(
        getattr(raw, name)(x=v[0], scale=v[1], offset=v[2], mean=v[3], variance=v[4], **more)[:3]
    )


def batch_norm_grad(name: str, random: Any) -> Any:
    """The gradient, with the reserve space that the forward op returns."""
    x, form = _image_or_volume(name, random)
    g, (scale, offset) = numbers(random, x.shape), (numbers(random, (x.shape[-1],)) for _ in range(2))
    forward = name.replace("Grad", "")
    empty = np.zeros(0, np.float32)

    def both(raw: Any, a: Any, b: Any, c: Any, d: Any) -> list[Any]:
        outputs = getattr(raw, forward)(x=a, scale=c, offset=d, mean=empty, variance=empty, epsilon=0.01, **form)
        reserve = {f"reserve_space_{number}": outputs[number + 2] for number in range(1, len(outputs) - 2)}
        return list(getattr(raw, name)(y_backprop=b, x=a, scale=c, epsilon=0.01, **reserve, **form)[:3])

    return [x, g, scale, offset], both


def corners(random: Any) -> dict[str, bool]:
    """How pixels are placed; both at once are not allowed."""
    return [{}, {"align_corners": True}, {"half_pixel_centers": True}][int(random.integers(0, 3))]


def resized(least: int, most: int) -> Any:
    """Images and a size that is drawn between two others."""

    def make(random: Any) -> Any:
        return [image(random), random.integers(least, most, 2).astype(np.int32)], corners(random)

    return make


def resized_grad(random: Any) -> Any:
    """The gradient of resized images, and the images."""
    x, size = image(random), (int(edge) for edge in random.integers(1, 12, 2))
    return [numbers(random, (len(x), *size, x.shape[-1])), x], corners(random)
