"""Graph cuts: where the ops of a forward graph are divided into blocks, and what crosses each cut.

    Gather  Add | LayerNorm  MatMul(w) | MatMul(w) | ... | MatMul(w)  Add | LayerNorm  MatMul(w)  Gelu | ...
    block 0       block 1                block 2           block n          block n + 1

Every block except that of the first look-ups has one product by weights; between two products the cut is at the last
of the places that the fewest values cross. A cut is clean if a single tensor is nearly all that crosses it; blocks
between two clean cuts make a layer. Ops that follow from logits of a tied table are in the block of the logits, even
if other ops come between.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from ipu_emu.graph import Graph, Role
from ipu_emu.ops import TABLE

CONVOLUTIONS = frozenset(("Conv", "ConvTranspose", "MultiConv"))
PRODUCTS = frozenset(("MatMul", "Gemm", "MatMulT", "RNN", "GRU", "LSTM"))
LOOK_UPS = frozenset(("Gather", "GatherElements", "GatherND"))
#: The op that changes a buffer, wherever it is in the graph.
UPDATE = "CopyVarUpdate"
#: The most values that cross a clean cut, relative to those of the largest tensor.
_CLEAN = 1.1


@dataclass(frozen=True)
class GraphCuts:
    """The cuts of ``graph``; a cut is before the op at its index.

    ``homes``: the IPU of each computed op, if known; the graph is then cut between IPUs too, and layers end there.
    """

    graph: Graph
    homes: tuple[int, ...] = ()

    @cached_property
    def weights(self) -> dict[str, str]:
        """The source weight of each tensor that is computed from weights only, such as a transposed one."""
        sources = {tensor.id: tensor.id for tensor in self.graph.with_role(Role.WEIGHT)}
        for op in self.graph.ops:
            source = next((sources[id] for id in op.inputs if id in sources), None)
            if source is not None and all(id in self.fixed for id in op.inputs if id):
                sources.update(dict.fromkeys(op.outputs, source))
        return sources

    @cached_property
    def fixed(self) -> set[str]:
        """Tensors that depend on no input."""
        fixed = {tensor.id for role in (Role.WEIGHT, Role.CONSTANT) for tensor in self.graph.with_role(role)}
        for op in self.graph.ops:
            inputs = [id for id in op.inputs if id]
            if inputs and all(id in fixed for id in inputs):
                fixed.update(op.outputs)
        return fixed

    @cached_property
    def computed(self) -> list[int]:
        """Indices of the ops that depend on inputs, without changes of buffers."""
        return [
            index
            for index, op in enumerate(self.graph.ops)
            if op.type != UPDATE and not all(id in self.fixed for id in op.outputs if id)
        ]

    @cached_property
    def starts(self) -> list[int]:
        """The index of the first op of each block."""
        products = self._products
        before = [index for index in self._look_ups if products and index < products[0]]
        ranges = pairwise([*before[-1:], *products])
        chosen = (min(range(end, start, -1), key=lambda index: sum(self.crossing[index])) for start, end in ranges)
        return sorted({0, *chosen, *self._moves})

    @cached_property
    def is_clean(self) -> list[bool]:
        """Whether the cut at the start of each block is clean."""
        crossing = ((start, self.crossing[start]) for start in self.starts)
        return [start in self._moves or sum(sizes) <= _CLEAN * max(sizes, default=0) for start, sizes in crossing]

    @cached_property
    def tied(self) -> dict[int, int]:
        """Indices of ops that follow from products by a table of an embedding; each with that of its product.

        Empty if further products by weights follow: such a table is not that of the logits.
        """
        tables = {self.weights.get(id) for index in self._look_ups for id in self.graph.ops[index].inputs} - {None}
        products, product_of = dict[int, int](), dict[str, int]()
        for index, op in enumerate(self.graph.ops):
            is_product = index in self._products
            if is_product and any(self.weights.get(id) in tables for id in op.inputs):
                products[index] = index
            elif any(id in product_of for id in op.inputs):
                if is_product:
                    return {}
                products[index] = next(product_of[id] for id in op.inputs if id in product_of)
            product_of |= dict.fromkeys(op.outputs, products[index]) if index in products else {}
        return products

    def block(self, index: int) -> int:
        """The number of the block of the op at ``index``."""
        return bisect_right(self.starts, self.tied.get(index, index)) - 1

    def passed(self, block: int) -> int:
        """Values that cross the end of a block; of the last one 0."""
        return sum(self.crossing[self.starts[block + 1]]) if block + 1 < len(self.starts) else 0

    @cached_property
    def _moves(self) -> set[int]:
        """Indices of ops that are on another IPU than the op before."""
        known = self.computed if self.homes else []
        return {index for before, index in pairwise(known) if self.homes[before] != self.homes[index]}

    @cached_property
    def _products(self) -> list[int]:
        return self._readers(CONVOLUTIONS | PRODUCTS)

    @cached_property
    def _look_ups(self) -> list[int]:
        return self._readers(LOOK_UPS)

    def _readers(self, types: frozenset[str]) -> list[int]:
        """Indices of ops of ``types`` that read a weight and a computed tensor."""
        indices = []
        for index, op in enumerate(self.graph.ops):
            inputs = [id for id in op.inputs if id]
            if op.type in types and any(id in self.weights for id in inputs):
                indices += [index] * (not all(id in self.fixed for id in inputs))
        return indices

    @cached_property
    def crossing(self) -> list[list[int]]:
        """The sizes of the tensors that cross a cut before each op, except tied logits; a view is its source."""
        roots: dict[str, str] = {}
        ends: dict[str, int] = {}
        for index, op in enumerate(self.graph.ops):
            view = TABLE[op].view_of
            source = None if view is None else roots.get(op.inputs[view])
            roots |= {id: source or id for id in op.outputs if id and id not in self.fixed}
            ends |= {roots[id]: index for id in op.inputs if id in roots}
        crossing, live = [], dict[str, int]()
        for index, op in enumerate(self.graph.ops):
            live = {id: size for id, size in live.items() if ends[id] >= index}
            crossing.append(list(live.values()))
            if index not in self.tied:
                live |= {id: self.graph.tensor(id).nelms for id in op.outputs if id in ends}
        return crossing
