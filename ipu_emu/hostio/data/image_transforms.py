"""Image transforms: compiled crop, flip, normalisation and layout change of images, in one pass, into the slot.

A byte has 256 values, so normalising is a look-up in a table with one row per channel, which is exact in every output
type: ``(value / 255 - mean) / std``, rounded once. The kernel releases the GIL, so threads prepare in parallel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from gcl.kernels.jit import jit
from ipu_emu.errors import FeedError
from ipu_emu.hostio.data.sample_structure import Field


class Images:
    """Prepare uint8 images of [height, width, channels].

    - ``crop``: (height, width) of the part to keep; None keeps the whole image. Its position is random, or central if
      ``random`` is False.
    - ``flip``: mirror each image with probability 1/2; ignored if ``random`` is False.
    - ``mean``, ``std``: per channel, on the scale from 0 to 1; without them values stay between 0 and 255.
    - ``dtype`` and ``layout`` ("HWC" or "CHW") of the result.
    """

    def __init__(
        self,
        *,
        crop: tuple[int, int] | None = None,
        flip: bool = False,
        random: bool = True,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        dtype: DTypeLike = np.float32,
        layout: str = "HWC",
    ) -> None:
        if layout not in ("HWC", "CHW"):
            raise FeedError(f"Images: layout is {layout!r}; use 'HWC' or 'CHW'")
        if (mean is None) is not (std is None) or len(mean or ()) != len(std or ()):
            raise FeedError("Images: mean and std must be given together, with one value per channel")
        self._crop, self._flip, self._random, self._channels_first = crop, flip, random, layout == "CHW"
        self._mean, self._std, self._dtype = mean, std, np.dtype(dtype)

    def field(self, field: Field) -> Field:
        """Return the field of the result: cropped images of ``dtype``."""
        if field.dtype != np.uint8 or len(field.shape) != 3:
            raise FeedError(f"Images takes uint8[height, width, channels]; a sample is {field}")
        height, width, channels = field.shape
        crop = self._crop or (height, width)
        if crop[0] > height or crop[1] > width or min(crop) < 1:
            raise FeedError(f"Images cannot crop {height} x {width} to {crop[0]} x {crop[1]}; use a smaller crop")
        if self._mean is not None and len(self._mean) != channels:
            raise FeedError(f"Images has {len(self._mean)} means for {channels} channels; give one per channel")
        self._table = self._values(channels)
        return Field(self._dtype, (channels, *crop) if self._channels_first else (*crop, channels))

    def _values(self, channels: int) -> NDArray[Any]:
        """Return the result for each byte value, by channel; half-precision values as their bits."""
        value = np.broadcast_to(np.arange(256.0), (channels, 256))
        if self._mean is not None and self._std is not None:
            value = (value / 255 - np.array(self._mean)[:, None]) / np.array(self._std)[:, None]
        return _as_bits(np.ascontiguousarray(value.astype(self._dtype)))

    def apply(
        self, source: NDArray[Any], rows: NDArray[np.int64], keys: NDArray[np.uint64], out: NDArray[Any]
    ) -> None:
        """Write the prepared ``source[rows]`` to ``out``."""
        images = np.moveaxis(out, 1, 3) if self._channels_first else out
        tops, lefts, flips = self._windows(source.shape, images.shape, keys)
        _look_up(source, rows, tops, lefts, flips, self._table, _as_bits(images))

    def _windows(
        self, source: tuple[int, ...], out: tuple[int, ...], keys: NDArray[np.uint64]
    ) -> tuple[NDArray[np.int64], ...]:
        """Return top, left and flip of each image; random ones come from different bits of its key."""
        down, right = source[1] - out[1], source[2] - out[2]
        if not self._random:
            same = np.zeros(len(keys), np.int64)
            return same + down // 2, same + right // 2, same
        tops = (keys & np.uint64(0xFFFFF)) % np.uint64(down + 1)
        lefts = ((keys >> np.uint64(20)) & np.uint64(0xFFFFF)) % np.uint64(right + 1)
        flips = (keys >> np.uint64(40)) & np.uint64(self._flip)
        return tops.astype(np.int64), lefts.astype(np.int64), flips.astype(np.int64)


def _as_bits(array: NDArray[Any]) -> NDArray[Any]:
    return array.view(np.uint16) if array.dtype == np.float16 else array


@jit
def _look_up(
    source: NDArray[Any],
    rows: NDArray[np.int64],
    tops: NDArray[np.int64],
    lefts: NDArray[np.int64],
    flips: NDArray[np.int64],
    table: NDArray[Any],
    out: NDArray[Any],
) -> None:
    """out[i, y, x, c] = table[c, source[rows[i], top + y, left + x, c]]; flipped images count x from the right."""
    height, width, channels = out.shape[1:]
    for image in range(len(rows)):
        begin, pace = lefts[image], 1
        if flips[image]:
            begin, pace = begin + width - 1, -1
        for y in range(height):
            line = source[rows[image], tops[image] + y]
            for channel in range(channels):
                values = table[channel]
                for x in range(width):
                    out[image, y, x, channel] = values[line[begin + pace * x, channel]]
