"""Work: what each IPU of a replica has to do and to hold, per sample, summed over its blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ipu_emu.predict.networks import Block
from ipu_emu.predict.placement import Placement

__all__ = ["CLASSES", "PlacedWork"]

#: Classes of operations, in the order of the columns of ``forward``.
CLASSES = ("convolution", "product", "attention", "vector", "embedding")

Values = NDArray[np.float64]


def _by_class(block: Block) -> tuple[float, ...]:
    return (block.convolution + block.idle, block.product, block.attention, block.vector, block.looked_up)


@dataclass(frozen=True)
class PlacedWork:
    """Arrays with an element, or a row, for each IPU."""

    placement: Placement

    @property
    def ipus(self) -> int:
        return len(self.placement)

    @cached_property
    def forward(self) -> Values:
        """[IPU, class]: operations of the forward pass of blocks that are trained."""
        return self._matrix(frozen=False)

    @cached_property
    def frozen(self) -> Values:
        """[IPU, class]: those of blocks that are not trained."""
        return self._matrix(frozen=True)

    @cached_property
    def parameters(self) -> Values:
        """Values of weights."""
        return self._sum(lambda block: block.parameters)

    @cached_property
    def trained(self) -> Values:
        """Values of weights that have a gradient."""
        return self._sum(lambda block: block.parameters * (not block.frozen))

    @cached_property
    def tensors(self) -> list[list[int]]:
        """Trained values of each block of each IPU."""
        return [
            [block.parameters for block in blocks if block.parameters and not block.frozen]
            for blocks in self.placement
        ]

    @cached_property
    def statistics(self) -> Values:
        return self._sum(lambda block: block.statistics)

    @cached_property
    def kept(self) -> Values:
        """Values that the backward pass reads, results of the blocks included."""
        return self._sum(lambda block: (block.kept + block.output) * (not block.frozen))

    @cached_property
    def outputs(self) -> Values:
        """Results of the blocks, the checkpoints of recomputation."""
        return self._sum(lambda block: block.output * (not block.frozen))

    @cached_property
    def transient(self) -> Values:
        """The most that one block needs for a moment."""
        return self._most(lambda block: block.transient)

    @cached_property
    def recomputed(self) -> Values:
        """The most that one block needs while it is recomputed and differentiated."""
        return self._most(lambda block: block.kept * (not block.frozen) + block.transient)

    @cached_property
    def boundary(self) -> Values:
        """Values passed on to the next IPU."""
        return np.array([float(blocks[-1].output) if blocks else 0.0 for blocks in self.placement])

    @cached_property
    def norms(self) -> list[list[int]]:
        """Channels of every batch normalisation."""
        return [[channels for block in blocks for channels in block.norms] for blocks in self.placement]

    def _matrix(self, *, frozen: bool) -> Values:
        rows = np.zeros((self.ipus, len(CLASSES)))
        for ipu, blocks in enumerate(self.placement):
            for block in blocks:
                if block.frozen == frozen:
                    rows[ipu] += _by_class(block)
        return rows

    def _sum(self, of: Callable[[Block], float]) -> Values:
        return np.array([float(sum(of(block) for block in blocks)) for blocks in self.placement])

    def _most(self, of: Callable[[Block], float]) -> Values:
        return np.array([float(max((of(block) for block in blocks), default=0)) for blocks in self.placement])
