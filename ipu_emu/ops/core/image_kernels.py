"""Image kernels: sums over images, and numbers spread over images, that are stored with the batch innermost.

Both are products with ones: numpy takes up to 20 times as long for inner loops over a few images.

    sum       [1, H W]  ones  x  image [H W, N]                 =  y [1, N]       for each channel
    spread    [H W, 1]  ones  x  numbers [1, N]                 =  y [H W, N], or y times another image
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.ops.codegen.compiled_call import offsets, relocation
from ipu_emu.ops.codegen.fused_store import RESULT, FusedStore
from ipu_emu.ops.codegen.matmul_calls import product_call
from ipu_emu.ops.codegen.matmul_kernel import row_blocks
from ipu_emu.ops.codegen.packed_matrix import lanes_within, tile_starts
from ipu_emu.ops.core.op_definition import Call, call_chain

_Array = NDArray[Any]

#: The fewest images for which the products are fast.
_LEAST = 4


def are_images(x: _Array) -> bool:
    """Whether ``x`` [N, C, H, W] has float32 images that are stored with the batch innermost."""
    fits = x.ndim == 4 and x.dtype == np.float32 and 0 not in x.shape and len(x) >= _LEAST
    return fits and x.transpose(1, 2, 3, 0).flags.c_contiguous


def image_sum(x: _Array, y: _Array) -> Call:
    """The call that sets ``y`` [N, C] or [N, C, 1, 1] to the sum of each image."""
    (n, c), size = x.shape[:2], x.shape[2] * x.shape[3]
    sums = np.zeros((c, 1, n), np.float32)
    ones = np.ones(size, np.float32)
    step = product_call(sums, size, 1, 1, w=ones, bias=None, y_batch=4 * n, **_common(x, size))
    return call_chain(step, relocation(sums.reshape(c, n), (y.squeeze((2, 3)) if y.ndim == 4 else y).T))


def image_spread(numbers: _Array, y: _Array, factor: _Array | None = None) -> Call | None:
    """The call that sets each image of ``y`` to its number of [N, C, 1, 1], times that of ``factor``.

    None for arrays that the products do not support. Sums start from -0, so that numbers stay as they are.
    """
    images = [y] if factor is None else [y, factor]
    if not all(map(are_images, [numbers, *images])) or numbers.shape != (*y.shape[:2], 1, 1):
        return None
    (n, c), size = y.shape[:2], y.shape[2] * y.shape[3]
    if n % lanes_within(n) or any(image.shape != y.shape for image in images):
        return None
    ones, zeros = np.ones(size, np.float32), np.full(size, -0.0, np.float32)
    lines = [image.transpose(1, 2, 3, 0).reshape(c, size, n) for image in images]
    calls: list[Call] = []
    for first, count, rows in row_blocks(size):
        target, *others = (line[:, first:] for line in lines)
        arguments = {"w": ones[first:], "bias": zeros, "y_batch": target.strides[0]}
        arguments["store"] = _product(target, others[0]) if others else None
        calls.append(product_call(target, 1, count, rows, first, **arguments, **_common(numbers, 1)))
    return call_chain(*calls)


def _product(target: _Array, factor: _Array) -> FusedStore:
    body = (("load", 0), ("load", 1), ("mul", 0, 1), ("store", 2, 2))
    return FusedStore(body, (RESULT, "full"), (factor,), target)


def _common(x: _Array, depth: int) -> dict[str, Any]:
    """The arguments of a product for each channel of ``x``, which has ``depth`` lines for each."""
    n, c = x.shape[:2]
    tiles = offsets(tile_starts(n, lanes_within(n)) * 4)
    return {
        "x": x,
        "wide": False,
        "from": tiles,
        "at": tiles,
        "tiles": len(tiles),
        "vectors": 1,
        "lanes": lanes_within(n),
        "x_step": 4 * n,
        "w_row": 4,
        "w_step": 4,
        "w_block": None,
        "batch": c,
        "x_batch": 4 * n * depth,
    }
