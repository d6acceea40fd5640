"""Cycles of an op: on the matrix unit or the vector unit of each tile, and for the exchange of its operands.

    cycles = 11 + max(FLOPs / rate, bytes / 16) + (600 + bytes received / 4, unless operands need no exchange)

per tile, with the work spread evenly over the compute tiles of an IPU. Starting an op takes 11 cycles and a sync 600;
per cycle a tile loads 16 bytes, receives 4 bytes, and its vector unit processes 8 bytes of elements. Views cost
nothing.

Each element of the operands of an op is sent to one tile; those of a matrix product are sent to several:

    C [M, N] = A [M, K] B [K, N] on Pm x Pn x Pk tiles

    a tile receives    1 / (Pm Pk) of A,  1 / (Pk Pn) of B
    and of its piece   1 / (Pm Pn) of C,  (Pk - 1) / Pk of which other tiles have summed in part

The grid is the one with the fewest bytes; a grid that never splits K, or never shares B, would need many times as
many. In a batch of matrix products each product has its own tiles. For convolutions A is the image as it is stored:
pixels that two tiles need are counted once.

A calibrated machine reaches a share of the peak of its matrix units, which covers exchange and loads too: a product
takes its FLOPs at that share, unless the sum above is longer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from gcl import sync_seconds
from ipu_emu.ops import TABLE, Node
from ipu_emu.program.clock.machine import ModelledMachine

__all__ = ["OpCycles", "Product", "op_cycles"]

_CONVOLUTIONS = {"Conv", "ConvDataGrad", "ConvWeightGrad", "ConvTranspose", "MultiConv"}
#: Ops whose FLOPs are nearly all in matrix products.
_MATRIX_OPS = _CONVOLUTIONS | {"MatMul", "Gemm", "MatMulT", "RNN", "GRU", "LSTM"}
_START, _VECTOR_BYTES = 11, 8


class OpCycles(NamedTuple):
    """Cycles of one call on one IPU, with those of the sync and of the exchange before it."""

    total: float
    sync: float
    exchange: float


def op_cycles(node: Node, machine: ModelledMachine) -> OpCycles:
    """The cycles of an op."""
    entry, kind, rates = TABLE[node.op], machine.generation, machine.rates
    cost = entry.cost(node)
    itemsize = max((tensor.dtype.itemsize for tensor in node.outputs), default=4)
    is_product = node.op.type in _MATRIX_OPS
    rate = kind.peak(itemsize) / kind.clock / kind.tiles if is_product else _VECTOR_BYTES / itemsize
    compute = max(cost.flops / rate, cost.bytes / kind.load_bytes) / machine.compute_tiles
    sync, exchange = (0.0, 0.0) if entry.elementwise else _exchange_cycles(node, machine)
    cycles = _START + compute + (sync + exchange)
    if is_product:
        share = rates.convolution if node.op.type in _CONVOLUTIONS else rates.product
        cycles = max(cycles, cost.flops / rate / share / machine.compute_tiles)
    return OpCycles(cycles, sync, exchange)


def _exchange_cycles(node: Node, machine: ModelledMachine) -> tuple[float, float]:
    """Cycles of the exchange before an op: of its sync, and of the bytes that every tile receives."""
    kind = machine.generation
    received = _product_bytes(node, machine) if node.op.type in _MATRIX_OPS else _spread_bytes(node, machine)
    return sync_seconds(1, kind.clock) * kind.clock, received / kind.exchange_bytes


def _spread_bytes(node: Node, machine: ModelledMachine) -> float:
    """Bytes that a tile receives if every element of the operands is sent to one tile."""
    return sum(tensor.nbytes for tensor in node.inputs if tensor is not None) / machine.compute_tiles


def _product_bytes(node: Node, machine: ModelledMachine) -> float:
    """Bytes that a tile receives for a product of the larger two operands, on the best grid of tiles."""
    a, b = sorted((tensor.nelms for tensor in node.inputs if tensor is not None), reverse=True)[:2]
    made = Product(a, b, node.outputs[0].nelms, TABLE[node.op].cost(node).flops // 2)
    return made.received(machine.compute_tiles) * node.outputs[0].dtype.itemsize


@dataclass(frozen=True)
class Product:
    """Elements of A, B and C, and multiplications of them."""

    a: int
    b: int
    c: int
    multiplications: int

    @property
    def groups(self) -> int:
        """Independent products: G M K, G K N and G M N elements, G M N K multiplications."""
        return max(1, round(self.a * self.b * self.c / max(self.multiplications, 1) ** 2))

    def received(self, tiles: int) -> float:
        """Elements that a tile receives, on the best grid of ``tiles`` tiles."""
        return _received(self, tiles)


@lru_cache(maxsize=4096)  # pure: shared by all sessions, since the layers of a model repeat their shapes
def _received(product: Product, tiles: int) -> float:
    if not product.a * product.b * product.c:
        return (product.a + product.b) / tiles  # nothing is multiplied
    groups = product.groups
    if groups >= tiles:
        return (product.a + product.b) / tiles
    a, b, c = (size / groups for size in (product.a, product.b, product.c))
    each = tiles / groups
    wide, deep = (b * c / a) ** 0.5, (a * b / c) ** 0.5
    best = float("inf")
    for columns in _powers(min(wide, each)):
        for layers in _powers(min(deep, each / columns)):
            rows = each / columns / layers
            summed = c / (rows * columns) * (layers - 1) / layers
            best = min(best, a / (rows * layers) + b / (layers * columns) + summed)
    return best


def _powers(limit: float) -> list[int]:
    """1, 2, 4, ... up to ``limit``."""
    return [1 << exponent for exponent in range(max(int(limit), 1).bit_length())]
