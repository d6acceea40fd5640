"""work: tile cycles of an op: the matrix unit, or the workers' vector unit, and the exchange that brings operands.

    cycles = 11 + max(FLOPs / rate, bytes / 16) + (600 + bytes read / 4 unless operands lie where they are used)

per tile, everything spread evenly over the tiles of an IPU that compute. 11 cycles start an op, a tile loads 16 bytes
and exchanges 4 per cycle, and a sync takes 600 cycles. The vector unit does one operation for each element of 8 bytes
per cycle. Views cost nothing. A tile that computes a block of a product needs whole rows of one operand and columns
of the other, so that most of both is sent to several tiles (see grid.py); of other operands each element is sent
once. How well a product fills the matrix unit is not modelled.
"""

from __future__ import annotations

from gcl import sync_seconds
from ipu_emu.clock.machine import Machine
from ipu_emu.clock.matmul_grid import Product
from ipu_emu.ops import TABLE, Node

__all__ = ["op_cycles"]

#: Ops whose FLOPs are nearly all products of matrices.
_MATRIX_OPS = {
    *("MatMul", "Gemm", "MatMulT", "Conv", "ConvDataGrad", "ConvWeightGrad", "ConvTranspose", "MultiConv"),
    *("RNN", "GRU", "LSTM"),
}
_START, _VECTOR_BYTES = 11, 8


def op_cycles(node: Node, machine: Machine) -> float:
    """Cycles of one call on one IPU."""
    entry, kind = TABLE[node.op], machine.generation
    cost = entry.cost(node)
    itemsize = max((tensor.dtype.itemsize for tensor in node.outputs), default=4)
    if node.op.type in _MATRIX_OPS:
        rate = kind.peak(itemsize) / kind.clock / kind.tiles * machine.amp_efficiency
    else:
        rate = _VECTOR_BYTES / itemsize
    compute = max(cost.flops / rate, cost.bytes / kind.load_bytes) / machine.compute_tiles
    return _START + compute + (0.0 if entry.elementwise else _exchange_cycles(node, machine))


def _exchange_cycles(node: Node, machine: Machine) -> float:
    """A sync, and what every tile receives."""
    kind = machine.generation
    received = _product_bytes(node, machine) if node.op.type in _MATRIX_OPS else _spread_bytes(node, machine)
    return sync_seconds(1, kind.clock) * kind.clock + received / kind.exchange_bytes


def _spread_bytes(node: Node, machine: Machine) -> float:
    """Every element of the operands goes to one tile."""
    return sum(tensor.nbytes for tensor in node.inputs if tensor is not None) / machine.compute_tiles


def _product_bytes(node: Node, machine: Machine) -> float:
    """The larger two operands are multiplied, on the best grid of tiles."""
    a, b = sorted((tensor.nelms for tensor in node.inputs if tensor is not None), reverse=True)[:2]
    made = Product(a, b, node.outputs[0].nelms, TABLE[node.op].cost(node).flops // 2)
    return made.received(machine.compute_tiles) * node.outputs[0].dtype.itemsize
