"""Cycles of an op: on the matrix unit or the vector unit of each tile, and for the exchange of its operands.

    cycles = 11 + max(FLOPs / rate, bytes / 16) + (600 + bytes received / 4, unless operands need no exchange)

per tile, with the work spread evenly over the compute tiles of an IPU. Starting an op takes 11 cycles and a sync 600;
per cycle a tile loads 16 bytes, receives 4 bytes, and its vector unit processes 8 bytes of elements. Views cost
nothing.

Each element of the operands of an op is sent to one tile; those of a matrix product to several,
those on the best grid of tiles (``ipu_emu.hardware.tile_cycles``). For convolutions A is the image as it is stored:
pixels that two tiles need are counted once.

A calibrated machine reaches a share of the peak of its matrix units, which covers exchange and loads too: a product
takes its FLOPs at that share, unless the sum above is longer.
"""

from __future__ import annotations

from typing import NamedTuple

from ipu_emu.hardware import Generation
from ipu_emu.hardware.rates import NOMINAL, Rates
from ipu_emu.hardware.tile_cycles import START, VECTOR_BYTES, received, sync_cycles
from ipu_emu.ops import TABLE, Node

_CONVOLUTIONS = {"Conv", "ConvDataGrad", "ConvWeightGrad", "ConvTranspose", "MultiConv"}
#: Ops whose FLOPs are nearly all in matrix products.
_MATRIX_OPS = _CONVOLUTIONS | {"MatMul", "Gemm", "MatMulT", "RNN", "GRU", "LSTM"}


class OpCycles(NamedTuple):
    """Cycles of one call on one IPU, with those of the sync and of the exchange before it."""

    total: float
    sync: float
    exchange: float


def op_cycles(node: Node, kind: Generation, tiles: int, rates: Rates = NOMINAL) -> OpCycles:
    """The cycles of an op on ``tiles`` tiles of an IPU."""
    entry = TABLE[node.op]
    cost = entry.cost(node)
    itemsize = max((tensor.dtype.itemsize for tensor in node.outputs), default=4)
    is_product = node.op.type in _MATRIX_OPS
    rate = kind.peak(itemsize) / kind.clock / kind.tiles if is_product else VECTOR_BYTES / itemsize
    compute = max(cost.flops / rate, cost.bytes / kind.load_bytes) / tiles
    sync, exchange = (0.0, 0.0) if entry.elementwise else _exchange_cycles(node, kind, tiles)
    cycles = START + compute + (sync + exchange)
    if is_product:
        share = rates.convolution if node.op.type in _CONVOLUTIONS else rates.product
        cycles = max(cycles, cost.flops / rate / share / tiles)
    return OpCycles(cycles, sync, exchange)


def _exchange_cycles(node: Node, kind: Generation, tiles: int) -> tuple[float, float]:
    """Cycles of the exchange before an op: of its sync, and of the bytes that every tile receives."""
    nbytes = (_product_bytes if node.op.type in _MATRIX_OPS else _spread_bytes)(node, tiles)
    return sync_cycles(kind), nbytes / kind.exchange_bytes


def _spread_bytes(node: Node, tiles: int) -> float:
    """Bytes that a tile receives if every element of the operands is sent to one tile."""
    return sum(tensor.nbytes for tensor in node.inputs if tensor is not None) / tiles


def _product_bytes(node: Node, tiles: int) -> float:
    """Bytes that a tile receives for a product of the larger two operands, on the best grid of tiles."""
    a, b = sorted((tensor.nelms for tensor in node.inputs if tensor is not None), reverse=True)[:2]
    result, multiplications = node.outputs[0], TABLE[node.op].cost(node).flops // 2
    return received(a, b, result.nelms, multiplications, tiles) * result.dtype.itemsize
