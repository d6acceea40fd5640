"""Network block: a part of a network that stays on one IPU: its parameters, its operations and values for one sample.

parameters        trained values; statistics are not trained (moving averages)
products          convolutions, products of matrices with weights, and of activations with each other (attention)
vector                operations on elements: normalisation, activation functions, softmax, sums
steps             other ops of the forward pass before which tiles exchange data: normalisations, transpositions
training_steps    those that training adds: gradients of such ops, sums of gradients of biases, losses
idle              operations that the matrix unit loses to unused channels: groups of fewer than 16 channels
looked_up         values read from tables
stashed           values that the backward pass reads, except the output of the previous block
output            values passed on to the next block; with recomputation only these are kept
inside            the same for a block within a layer, which has no ``output``, if a placement divides the layer there
transient         values that are live at the peak of the backward pass, in addition to the stashed ones
unsliced          further such values if logits are computed as a whole instead of in slices
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from ipu_emu.compiler.placement.graph_balance import MicroBatchWork

#: Softmax and loss of a classification, and their gradient.
LOSS_STEPS = 3


class BlockKind(StrEnum):
    """The kind of a block, which determines its placement: a tied head, for example, is with its table."""

    EMBEDDING = "embedding"
    STEM = "stem"
    ATTENTION = "attention"
    FEED_FORWARD = "feed-forward"
    LAYER = "layer"
    HEAD = "head"


@dataclass(frozen=True)
class BlockProduct:
    """``count`` convolutions or matrix products; elements of operands and result, and multiplications, of each.

    All are numbers for one sample, except the weights: the ``other`` operand of convolutions and products.
    ``kind`` is convolution, product or attention. If an operand is ``data`` of the network,
    its gradient is not computed.
    """

    kind: str
    operand: float
    other: float
    result: float
    multiplications: float
    count: float = 1
    data: bool = False

    @property
    def flops(self) -> float:
        """Operations of all products in the forward pass; a multiply-add counts as two."""
        return 2.0 * self.multiplications * self.count

    def of(self, samples: float) -> BlockProduct:
        """The same for ``samples`` samples at once."""
        other = self.other * (samples if self.kind == "attention" else 1)
        sizes = (samples * self.operand, other, samples * self.result, samples * self.multiplications)
        return BlockProduct(self.kind, *sizes, self.count, self.data)


def weighted(positions: float, inputs: int, outputs: int, *, count: float = 1, data: bool = False) -> BlockProduct:
    """Products of ``positions`` rows of a sample with weights [inputs, outputs]."""
    sizes = (positions * inputs, float(inputs * outputs), positions * outputs, positions * inputs * outputs)
    return BlockProduct("product", *sizes, count, data)


@dataclass(frozen=True)
class NetworkBlock:
    """A block of a network; see the module. ``extra``: not in published counts. ``tied``: uses the embedding's table.
    ``table``: values of the table that makes logits, tied or not.

    ``frozen`` blocks are not trained: they have no backward pass and no states. ``norms``: channels of each batch
    normalisation, whose statistics replicas may share. ``layer``: blocks of one layer are recomputed together, and
    placed together if there are enough layers. ``home``: the IPU, if the network sets it.
    """

    name: str
    kind: BlockKind
    parameters: int = 0
    statistics: int = 0
    products: tuple[BlockProduct, ...] = ()
    vector: float = 0.0
    steps: float = 0.0
    training_steps: float = 0.0
    idle: float = 0.0
    looked_up: float = 0.0
    stashed: float = 0.0
    output: float = 0.0
    inside: float = 0.0
    transient: float = 0.0
    unsliced: float = 0.0
    norms: tuple[int, ...] = ()
    extra: bool = False
    tied: bool = False
    table: int = 0
    frozen: bool = False
    layer: str = ""
    home: int | None = None

    @property
    def group(self) -> str:
        """The name of the layer, or of the block itself."""
        parts = (BlockKind.ATTENTION, BlockKind.FEED_FORWARD)
        return self.layer or (self.name.rsplit("/", 1)[0] if self.kind in parts else self.name)

    @property
    def variables(self) -> float:
        """Tensors of weights, if products have a bias, and convolutions have none."""
        norm = self.kind in (BlockKind.ATTENTION, BlockKind.FEED_FORWARD, BlockKind.EMBEDDING)
        tensors = {"convolution": 1, "product": 2}
        weights = sum(tensors.get(product.kind, 0) * product.count for product in self.products)
        return weights + 2 * (norm + len(self.norms))

    @property
    def convolution(self) -> float:
        """Operations of convolutions in the forward pass of a sample."""
        return self._flops("convolution")

    @property
    def product(self) -> float:
        """Operations of products with weights."""
        return self._flops("product")

    @property
    def attention(self) -> float:
        """Operations of products of activations with each other."""
        return self._flops("attention")

    @property
    def matrix(self) -> float:
        """Operations on the matrix unit, in the forward pass of a sample."""
        return self.convolution + self.product + self.attention

    def _flops(self, kind: str) -> float:
        return sum(product.flops for product in self.products if product.kind == kind)


@dataclass(frozen=True)
class Network:
    """``blocks`` in the order of the forward pass.

    ``input_values`` of a sample come from the host as elements of ``input_dtype``, with ``label_bytes``, in
    ``inputs`` and ``labels`` tensors. In inference ``result_values`` go to the host.
    ``samples``: the noun for one sample. ``family``: the kind of network, for calibrations. ``divided``: the network
    on a number of IPUs, for a graph, whose blocks then have the homes that the compiler gives their ops.
    """

    name: str
    family: str
    samples: str
    blocks: tuple[NetworkBlock, ...]
    input_values: int
    input_dtype: str
    label_bytes: int = 4
    inputs: int = 1
    labels: int = 1
    result_values: float = 0.0
    divided: Callable[[int, MicroBatchWork], Network] | None = None

    @property
    def homes(self) -> set[int]:
        """The IPUs of the blocks that the network places."""
        return {block.home for block in self.blocks if block.home is not None}

    @property
    def parameters(self) -> int:
        """Trained parameters without heads that only pre-training needs, as published."""
        return sum(block.parameters for block in self.blocks if not block.extra)

    @property
    def trained(self) -> int:
        """All trained parameters."""
        return sum(block.parameters for block in self.blocks if not block.frozen)

    @property
    def statistics(self) -> int:
        """Moving averages."""
        return sum(block.statistics for block in self.blocks)

    @property
    def flops(self) -> float:
        """Operations of the forward pass of a sample on the matrix unit."""
        return sum(block.matrix for block in self.blocks)

    @property
    def model_flops(self) -> float:
        """Operations on the matrix unit to train on a sample: three times the forward pass of trained blocks."""
        return sum(block.matrix * (1 if block.frozen else 3) for block in self.blocks)

    @property
    def activations(self) -> float:
        """Values of a sample that training keeps without recomputation."""
        return sum(block.stashed + block.output for block in self.blocks if not block.frozen)

    def without_homes(self) -> Network:
        """Return the network without placements of blocks."""
        return replace(self, blocks=tuple(replace(block, home=None) for block in self.blocks))


def images(
    name: str, blocks: Sequence[NetworkBlock], size: int, results: int, *, family: str = "convolutional"
) -> Network:
    """A network for images of ``size`` x ``size`` pixels."""
    values = 3 * size * size
    return Network(name, family, "images", tuple(blocks), values, "uint8", result_values=float(results))
