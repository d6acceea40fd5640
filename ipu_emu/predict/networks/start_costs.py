"""Start costs: extra cycles of short ops, beyond their operations at the calibrated fraction of the peak rate.

An op is started, its operands are exchanged after a sync, and a product is then computed at the rate of the matrix
unit. The calibrated share of the peak covers that of large products; a small one takes

    11 + 600 + bytes received / 4 + operations / rate        cycles, as in ipu-emu clock

and the difference counts here, as do start and sync of other ops that exchange data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ipu_emu.hardware import Generation
from ipu_emu.hardware.tile_cycles import START, received_by_each, sync_cycles
from ipu_emu.predict.networks.block import BlockProduct

Values = NDArray[np.float64]


def step_cycles(generation: Generation) -> float:
    """Cycles of start and sync of an op."""
    return START + sync_cycles(generation)


def product_cycles(
    products: tuple[BlockProduct, ...],
    batches: Values,
    generation: Generation,
    itemsize: int,
    *,
    shares: Sequence[float],
    passes: tuple[float, float],
) -> Values:
    """Extra cycles of products, beyond ``shares`` of the peak rate, for each of ``batches`` numbers of samples.

    ``shares``: of convolutions, and of other products. ``passes``: forward passes, and backward passes.
    """
    if not products:
        return np.zeros(len(batches))
    key = (products, tuple(map(float, batches)), generation.tiles, bool(passes[1]))
    moved, multiplications, counts, is_convolution, is_backward = _priced(*key)
    peak = generation.tiles * generation.peak(itemsize) / generation.clock / generation.tiles
    nominal = 2 * multiplications / peak
    share = np.where(is_convolution, shares[0], shares[1])[:, None]
    exchanged = moved * itemsize / generation.exchange_bytes
    longer = np.maximum(0.0, step_cycles(generation) + nominal + exchanged - nominal / share)
    weight = counts * np.where(is_backward, passes[1], passes[0])
    cycles: Values = weight @ longer
    return cycles


@lru_cache(maxsize=1024)  # pure: the same for all rates
def _priced(
    products: tuple[BlockProduct, ...], batches: tuple[float, ...], tiles: int, training: bool
) -> tuple[Values, Values, Values, Values, Values]:
    """[pass of a product, batch] elements received and multiplications; number, kind and direction of the passes."""
    rows = list(_passes(products, training=training))
    shapes = np.array([[_shape(product.of(batch), way) for batch in batches] for product, way in rows])
    flat = shapes.reshape(-1, 4).T
    moved = received_by_each(flat, tiles).reshape(len(rows), len(batches))
    return (
        moved,
        flat[3].reshape(moved.shape),
        np.array([product.count for product, _ in rows]),
        np.array([product.kind == "convolution" for product, _ in rows]),
        np.array([way > 0 for _, way in rows]),
    )


def _passes(products: Sequence[BlockProduct], *, training: bool) -> Iterator[tuple[BlockProduct, int]]:
    """Each product with its passes: 0 forward, 1 and 2 the gradients of its operands."""
    for product in products:
        yield product, 0
        if training:
            yield product, 2
            if not product.data:
                yield product, 1


def _shape(product: BlockProduct, way: int) -> tuple[float, float, float, float]:
    """Elements of both operands and of the result, and multiplications: C = A B, A' = C' B, B' = A C'."""
    a, b, c = product.operand, product.other, product.result
    return (*((a, b, c), (c, b, a), (a, c, b))[way], product.multiplications)
