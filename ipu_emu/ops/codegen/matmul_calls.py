"""Matrix product calls: the kernels ``product`` and ``dots`` bound to (batches of) matrices in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.ops.codegen.compiled_call import Call, named_call, offsets
from ipu_emu.ops.codegen.dot_kernel import DOTS, dot_block, dots
from ipu_emu.ops.codegen.fused_store import EXTRAS, FusedStore
from ipu_emu.ops.codegen.llvm_compiler import LANES, vector_width
from ipu_emu.ops.codegen.matmul_kernel import PRODUCT, block_rows, product

_Array = NDArray[Any]


@dataclass
class Operands:
    """y = a b + bias, which has a number for each column of y if it is ``wide``, and for each row if not."""

    a: _Array
    b: _Array
    y: _Array
    scratch: Sequence[_Array]
    bias: _Array | None
    wide: bool


def product_call(y: _Array, k: int, blocks: int, rows: int, first: int = 0, **arguments: Any) -> Call:
    """Set ``blocks`` times ``rows`` rows of y; row 0 has number ``first`` of a bias that is not wide.

    Without ``step`` the rows of x are ``x_step`` bytes apart; with ``w_block`` None the blocks of w are contiguous.
    The kernel is specialised for contiguous strides and for strides of panels. ``store`` is the function
    of the results that is stored.
    """
    wide, vectors, lanes = arguments.pop("wide"), arguments.pop("vectors", 2), arguments.pop("lanes", vector_width())
    even = arguments.setdefault("step", None) is None
    usual = {"x_step": (4 * vectors * lanes,) if even else (), "w_row": (4,), "w_step": (4, 4 * block_rows())}
    fixed = tuple((name, arguments[name]) for name, strides in usual.items() if arguments.get(name) in strides)
    prefetch = arguments.get("next") is not None
    store: FusedStore | None = arguments.pop("store", None)
    form: dict[str, Any] = {"store": store.form} if store else {}
    if arguments.setdefault("w_at", None) is not None:
        form["listed"] = True
    function = product(rows, vectors, y.dtype == np.float16, wide, even, fixed, lanes, prefetch, **form)
    if arguments["bias"] is not None and not wide:
        arguments["bias"] = arguments["bias"][first:]
    if arguments["w_block"] is None:
        arguments["w_block"] = rows * arguments["w_row"]
    defaults = {"batch": 1, "x_batch": 0, "w_batch": 0, "y_batch": 0, "bias_batch": 0, "add": 0, "x_step": 0}
    defaults |= {"next": 0, "next_row": 0, "next_tile": 0, "next_tiles": 0}
    defaults["next_block"] = arguments["tiles"] * arguments.get("next_tile", 0)
    defaults |= {"depth_chunk": k, "tile_chunk": arguments["tiles"], "y_row": y.strides[-2]}
    defaults |= store.arguments() if store else dict.fromkeys(EXTRAS, 0)
    own = {"y": y, "depth": k, "blocks": blocks}
    return named_call(function, PRODUCT, **(defaults | arguments | own))


def dot_calls(a: _Array, b: _Array, y: _Array) -> list[Call]:
    """The calls that set y to the dot products of rows of a with columns of b, which are neighbours in memory."""
    return [
        _dots_call(a[..., rows, :], b[..., :, columns], y[..., rows, columns])
        for rows in whole_and_rest(a.shape[-2], dot_block())
        for columns in whole_and_rest(b.shape[-1], dot_block())
    ]


def _dots_call(a: _Array, b: _Array, y: _Array) -> Call:
    rows, columns = min(dot_block(), a.shape[-2]), min(dot_block(), b.shape[-1])
    count, rest = divmod(a.shape[-1], LANES)
    tiles = offsets(np.arange(count) * LANES * 4)
    arguments: dict[str, Any] = {
        "x": b,
        "g": a,
        "out": y,
        "from": tiles,
        "at": tiles,
        "step": offsets(np.arange(b.shape[-1]) * b.strides[-1]),
        "rest": rest,
        "tiles": count,
        "columns": b.shape[-1],
        "blocks": a.shape[-2] // rows,
        "g_row": a.strides[-2],
        "out_row": y.strides[-2],
        "out_column": y.strides[-1],
        "add": 0,
        "batch": y.shape[0] if y.ndim == 3 else 1,
        "x_batch": b.strides[0] if b.ndim == 3 and b.shape[0] > 1 else 0,
        "g_batch": a.strides[0] if a.ndim == 3 and a.shape[0] > 1 else 0,
        "out_batch": y.strides[0] if y.ndim == 3 else 0,
    }
    return named_call(dots(rows, columns), DOTS, **arguments)


def whole_and_rest(count: int, size: int) -> list[slice]:
    """The slice of whole blocks of ``size``, and the slice of the remainder; an empty slice is left out."""
    end = count // size * size
    return [part for part in (slice(0, end), slice(end, count)) if part.stop > part.start]
