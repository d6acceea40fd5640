"""Work per IPU: the operations and activations of each IPU of a replica per sample, summed over its blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, groupby

import numpy as np
from numpy.typing import NDArray

from ipu_emu.predict.networks import BlockProduct, NetworkBlock
from ipu_emu.predict.placement import Placement

#: Classes of operations, in the order of the columns of ``forward``; starts: the extra time of short ops.
CLASSES = ("convolution", "product", "attention", "vector", "embedding", "starts")

Values = NDArray[np.float64]
#: Moving averages of a batch normalisation.
_MOVING = 2


def _by_class(block: NetworkBlock) -> tuple[float, ...]:
    return (block.convolution + block.idle, block.product, block.attention, block.vector, block.looked_up, 0.0)


def _merged(blocks: Sequence[NetworkBlock], *, frozen: bool) -> tuple[BlockProduct, ...]:
    """The products of ``blocks``; equal ones are merged, with their number."""
    counts: dict[BlockProduct, float] = {}
    for product in (product for block in blocks if block.frozen == frozen for product in block.products):
        unit = replace(product, count=1)
        counts[unit] = counts.get(unit, 0) + product.count
    return tuple(replace(unit, count=count) for unit, count in counts.items())


def layers(blocks: Sequence[NetworkBlock]) -> list[list[NetworkBlock]]:
    """``blocks`` in groups that are recomputed together: the parts of a layer, or a single block."""
    return [list(group) for _, group in groupby(blocks, lambda block: block.group)]


def _recomputed(layer: Sequence[NetworkBlock]) -> float:
    """The most values live while ``layer`` is differentiated, from the last block to the first."""
    stashed = accumulate(block.stashed * (not block.frozen) for block in layer)
    return max(float(before + block.transient) for before, block in zip(stashed, layer, strict=True))


def _peak(blocks: Sequence[NetworkBlock]) -> tuple[float, float]:
    stashed = accumulate((block.stashed + block.output) * (not block.frozen) for block in blocks)
    live = ((float(before), float(block.transient)) for before, block in zip(stashed, blocks, strict=True))
    return max(live, key=sum, default=(0.0, 0.0))


def _peak_recomputed(groups: Sequence[Sequence[NetworkBlock]]) -> tuple[float, float]:
    stashed = accumulate((layer[-1].output * (not layer[-1].frozen) for layer in groups), initial=0.0)
    live = ((float(before), _recomputed(layer)) for before, layer in zip(stashed, groups, strict=False))
    return max(live, key=sum, default=(0.0, 0.0))


@dataclass(frozen=True)
class PlacedWork:
    """The work of a placement: arrays with an element or a row for each IPU."""

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
        """[IPU, class]: operations of the forward pass of blocks that are not trained."""
        return self._matrix(frozen=True)

    @cached_property
    def needless(self) -> Values:
        """[IPU, class]: operations for gradients of the network's input data, which are not computed."""
        rows = np.zeros((self.ipus, len(CLASSES)))
        for ipu, blocks in enumerate(self.placement):
            for product in (
                product for block in blocks if not block.frozen for product in block.products if product.data
            ):
                rows[ipu, CLASSES.index(product.kind)] += product.flops
        return rows

    @cached_property
    def products(self) -> list[tuple[tuple[BlockProduct, ...], tuple[BlockProduct, ...]]]:
        """The different products of each IPU in a forward pass, with their number: trained ones, and others."""
        return [(_merged(blocks, frozen=False), _merged(blocks, frozen=True)) for blocks in self.placement]

    @cached_property
    def steps(self) -> Values:
        """[IPU, 3]: other ops that exchange data: forward, what training adds, and what is never recomputed.

        The last column counts moving averages, two of each normalisation, and all ops of blocks that are not trained.
        """

        def of(block: NetworkBlock) -> tuple[float, float, float]:
            once = _MOVING * len(block.norms)
            if block.frozen:
                return 0.0, 0.0, block.steps + once
            return block.steps, block.training_steps, once

        return np.array(
            [np.sum([of(block) for block in blocks] or [(0.0,) * 3], axis=0) for blocks in self.placement]
        )

    @cached_property
    def weights(self) -> float:
        """Number of trained products with weights, on the IPU with the most."""
        kinds = ("convolution", "product")
        return max(sum(product.count for product in trained if product.kind in kinds) for trained, _ in self.products)

    @cached_property
    def parameters(self) -> Values:
        """Values of weights."""
        return self._sum(lambda block: block.parameters)

    @cached_property
    def trained(self) -> Values:
        """Values of weights that have a gradient."""
        return self._sum(lambda block: block.parameters * (not block.frozen))

    @cached_property
    def variables(self) -> Values:
        """Tensors of weights."""
        return self._sum(lambda block: block.variables)

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
    def stashed(self) -> Values:
        """Values that the backward pass reads, including the results of the blocks."""
        return self._sum(lambda block: (block.stashed + block.output) * (not block.frozen))

    @cached_property
    def checkpoints(self) -> Values:
        """Values kept with recomputation: the input of each layer, also if it comes from the previous IPU."""
        checkpoints = [
            float(sum(layer[-1].output for layer in layers(blocks) if not layer[-1].frozen))
            for blocks in self.placement
        ]
        return np.array(checkpoints) - self.sent + self.received

    @cached_property
    def sent(self) -> Values:
        """Values sent to another IPU; by the last IPU only if a tied head is on an earlier one."""
        values = self.boundary.copy()
        values[-1] *= self.stages > self.ipus
        return values

    @cached_property
    def passed(self) -> list[tuple[int, int, float]]:
        """(from IPU, to IPU, values) of each stage except the last."""
        transfers = [(ipu, ipu + 1, float(values)) for ipu, values in enumerate(self.boundary[:-1])]
        if self.stages > self.ipus:
            transfers.append((self.ipus - 1, self.last_home, float(self.boundary[-1])))
        return transfers

    @property
    def last_home(self) -> int:
        """The IPU that computes the results: that of a tied head, else the last."""
        homes = (ipu for ipu, blocks in enumerate(self.placement) if any(block.tied for block in blocks))
        return next(homes, self.ipus - 1)

    @cached_property
    def received(self) -> Values:
        """Values received from the previous IPU."""
        return np.concatenate([[0.0], self.sent[:-1]])

    @cached_property
    def stages(self) -> int:
        """Stages of a pipeline: one for each IPU, and one more for a tied head that is not on the last IPU."""
        return self.ipus + any(block.tied for blocks in self.placement[:-1] for block in blocks)

    @cached_property
    def transient(self) -> Values:
        """The most transient values of a block."""
        return self._most(lambda block: block.transient)

    @cached_property
    def recomputed(self) -> Values:
        """The most values that a layer needs while it is recomputed and differentiated."""
        return np.array([max(map(_recomputed, layers(blocks)), default=0.0) for blocks in self.placement])

    @cached_property
    def peak(self) -> Values:
        """[IPU, 2]: stashed and transient values at the peak of their sum.

        The backward pass of a micro-batch has released the stashed values of later blocks.
        """
        return np.array([_peak(blocks) for blocks in self.placement])

    @cached_property
    def peak_recomputed(self) -> Values:
        """[IPU, 2]: the same with recomputation, when layers keep their results."""
        return np.array([_peak_recomputed(layers(blocks)) for blocks in self.placement])

    @cached_property
    def unsliced(self) -> Values:
        """Transient values of a sample if logits are computed as a whole; 0 without a vocabulary head."""
        return self._most(lambda block: (block.stashed + block.transient + block.unsliced) * bool(block.table))

    @cached_property
    def tables(self) -> Values:
        """Values of the tables that make logits."""
        return self._sum(lambda block: block.table)

    @cached_property
    def tied(self) -> Values:
        """Values of those tables that are also the table of an embedding."""
        return self._sum(lambda block: block.table * block.tied)

    @cached_property
    def largest(self) -> Values:
        """Trained values of the block with the most."""
        return self._most(lambda block: block.parameters * (not block.frozen))

    @cached_property
    def boundary(self) -> Values:
        """Output values of the last block that is not a tied head."""
        ends = ([block.output + block.inside for block in blocks if not block.tied] for blocks in self.placement)
        return np.array([float(outputs[-1]) if outputs else 0.0 for outputs in ends])

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

    def _sum(self, of: Callable[[NetworkBlock], float]) -> Values:
        return np.array([float(sum(of(block) for block in blocks)) for blocks in self.placement])

    def _most(self, of: Callable[[NetworkBlock], float]) -> Values:
        return np.array([float(max((of(block) for block in blocks), default=0)) for blocks in self.placement])
