"""Image ops: normalised floats from images of integers."""

from __future__ import annotations

from typing import Any

from tensorflow.python.framework import ops
from tensorflow.python.ops import array_ops, math_ops

__all__ = ["normalise_image"]


def normalise_image(
    image: Any, channel_offsets: Any, channel_scales: Any, scale: float = 1, name: str | None = None
) -> Any:
    """(image scale - channel_offsets) channel_scales, for images of 3 channels, with a fourth channel of zeros."""
    with ops.name_scope(name or "normalise_image"):
        image, offsets = ops.convert_to_tensor(image), ops.convert_to_tensor(channel_offsets)
        if image.shape[-1] != 3:
            raise ValueError(f"normalise_image takes images of 3 channels, found the shape {image.shape}")
        scales = ops.convert_to_tensor(channel_scales, dtype=offsets.dtype)
        normalised = (math_ops.cast(image, offsets.dtype) * math_ops.cast(scale, offsets.dtype) - offsets) * scales
        return array_ops.pad(normalised, [[0, 0]] * (image.shape.rank - 1) + [[0, 1]])
