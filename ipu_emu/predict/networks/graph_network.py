"""Graph network: the blocks of any forward graph, derived from its ops.

a block       the ops between two cuts, one of which multiplies by weights (``graph_cuts.py``)
a layer       the blocks between two clean cuts
stashed       values that the gradients of the ops read: results of functions such as Relu, operands of others
logits        products by weights that a softmax reads, computed as a whole and not kept for the gradient
a tied head   a product by a table of an embedding: both blocks are on one IPU
not counted   ops on weights only, which are computed once, and views
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache, partial

from ipu_emu.compiler.placement.graph_balance import MicroBatchWork, balanced_places
from ipu_emu.compiler.placement.graph_cuts import CONVOLUTIONS, LOOK_UPS, PRODUCTS, GraphCuts
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Op, Role
from ipu_emu.ops import TABLE
from ipu_emu.predict.networks.block import BlockKind, BlockProduct, Network, NetworkBlock
from ipu_emu.program.memory_plan import node_in

_SOFTMAXES = frozenset(
    ("Softmax", "LogSoftmax", "SoftmaxCrossEntropyLoss", "SoftmaxCrossEntropy", "SparseSoftmaxCrossEntropy")
)
#: Ops whose gradient reads the result, not the operands.
_READS_RESULT = frozenset(("Relu", "Sigmoid", "Tanh", "Softmax", "LogSoftmax", "Exp", "Sqrt"))
#: Ops whose gradient reads neither.
_READS_NOTHING = frozenset(
    {
        *("Add", "Sub", "Sum", "Neg", "Scale", "Identity", "Cast", "Concat"),
        *("Split", "Slice", "Pad", "Expand", "AveragePool", "GlobalAveragePool", "ReduceSum"),
        *("ReduceMean", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten"),
    }
)
#: Operations per element of the result, as in the blocks of named networks; other ops have the cost in the op table.
_VECTOR = {
    "BatchNormalization": 10,
    **dict.fromkeys(("LayerNormalization", "GroupNormalization", "InstanceNormalization"), 8),
    **dict.fromkeys(("Softmax", "LogSoftmax"), 6),
    **dict.fromkeys(("Gelu", "GeluErf", "GeluTanh"), 10),
}
#: Channels that a matrix unit multiplies at a time.
_CHANNELS = 16

#: Names of element types of inputs in jobs.
_DTYPES = {"uint8": "uint8", "int8": "uint8", "float16": "float16", "int32": "int32", "int64": "int32"}


@dataclass
class _Part:
    """The ops of a block so far."""

    name: str
    number: int
    index: int
    parameters: int = 0
    statistics: int = 0
    operations: dict[str, float] = field(default_factory=dict)
    computed: list[BlockProduct] = field(default_factory=list)
    steps: int = 0
    training_steps: int = 0
    stashed: set[str] = field(default_factory=set)
    transient: int = 0
    norms: list[int] = field(default_factory=list)
    multiplied: str = ""
    products: set[str] = field(default_factory=set)
    logits: set[str] = field(default_factory=set)
    table: str = ""

    def add(self, kind: str, amount: float) -> None:
        self.operations[kind] = self.operations.get(kind, 0.0) + amount


def graph_network(graph: Graph, name: str, batch: int, homes: tuple[int, ...] = ()) -> Network:
    """The network of a forward pass for ``batch`` samples; EmulatorError for a graph without ops on its inputs.

    ``homes``: the IPU of each op, if the graph sets it.
    """
    walk = _Walk.through(graph, batch, homes)
    blocks = walk.blocks()
    if not blocks:
        raise EmulatorError(f"{name} computes nothing from its inputs; there is nothing to predict")
    inputs = graph.with_role(Role.INPUT)
    convolution, attention = (sum(getattr(block, kind) for block in blocks) for kind in ("convolution", "attention"))
    family = "convolutional" if convolution > attention else "transformer" if attention else "fully connected"
    values = sum(tensor.nelms for tensor in inputs) // batch
    dtype = max((tensor.dtype.name.lower() for tensor in inputs), key=len, default="float32")
    results = graph.tensor((graph.outputs or graph.ops[-1].outputs)[0]).nelms / batch

    kind = _DTYPES.get(dtype, "float")
    network = Network(name, family, "samples", blocks, values, kind, 0, len(inputs), 0, float(results))
    return replace(network, divided=cache(partial(_divided, graph, name, batch)))


def _divided(graph: Graph, name: str, batch: int, ipus: int, work: MicroBatchWork) -> Network:
    places = balanced_places(graph, (1.0,) * ipus, work=work)
    return graph_network(graph, name, batch, tuple(ipu for ipu, _ in places))


def op_blocks(graph: Graph) -> dict[str, str]:
    """The name of the block of each op that depends on an input, by its first output."""
    walk = _Walk.through(graph, 1)
    names = {number: part.name for number, part in walk.parts.items()}
    blocks = {}
    for index, op in enumerate(graph.ops):
        outputs = [id for id in op.outputs if id and id not in walk.fixed]
        if outputs:
            blocks[outputs[0]] = names[walk.cuts.block(index)]
    return blocks


class _Walk:
    """The ops of a graph in order, as parts of blocks."""

    def __init__(self, graph: Graph, batch: int, homes: tuple[int, ...]) -> None:
        self.graph, self.batch = graph, batch
        self.cuts = GraphCuts(graph, homes)
        self.fixed, self.weights = self.cuts.fixed, self.cuts.weights
        self.heads = {self.cuts.block(index) for index in self.cuts.tied}
        self.parts: dict[int, _Part] = {}
        self.counted: set[str] = set()
        self.views: dict[str, str] = {}
        self.looked_up: dict[str, _Part] = {}

    @classmethod
    def through(cls, graph: Graph, batch: int, homes: tuple[int, ...] = ()) -> _Walk:
        """Return the walk after all ops."""
        walk = cls(graph, batch, homes)
        for index in walk.cuts.computed:
            walk.visit(index)
        return walk

    def visit(self, index: int) -> None:
        """Count the op at ``index`` in its block."""
        op, block = self.graph.ops[index], self.cuts.block(index)
        inputs = [id for id in op.inputs if id]
        view_of = TABLE[op].view_of
        if view_of is not None:
            self.views[op.outputs[0]] = self._source(op.inputs[view_of])
            return
        read = [id for id in inputs if id in self.weights]
        is_product = op.type in CONVOLUTIONS | PRODUCTS and bool(read)
        part = self.parts.setdefault(block, _Part(op.outputs[0], block, index))
        self._note_tables(part, op, read, is_product=is_product)
        self._count_operations(part, op, bool(read))
        self._count_parameters(part, op, read)
        self._count_values(part, op, inputs)

    def blocks(self) -> tuple[NetworkBlock, ...]:
        """The finished blocks, each with its layer."""
        blocks, layer = [], ""
        for part in self.parts.values():
            block = self._block(part)
            own = block.kind is not BlockKind.LAYER
            layer = "" if own else layer or part.name
            home = self.cuts.homes[part.index] if self.cuts.homes else None
            blocks.append(replace(block, layer=layer, home=home))
            layer = "" if self._ends_layer(part) else layer
        return tuple(blocks)

    def _ends_layer(self, part: _Part) -> bool:
        after = part.number + 1
        return after >= len(self.cuts.starts) or self.cuts.is_clean[after]

    def _block(self, part: _Part) -> NetworkBlock:
        """The finished block, for one sample."""
        passed, ends = self.cuts.passed(part.number) / self.batch, self._ends_layer(part)
        output = passed * ends
        stashed = sum(self._values(id) for id in part.stashed)

        def operations(kind: str) -> float:
            return part.operations.get(kind, 0.0) / self.batch

        tied = part.table in self.looked_up and part.number in self.heads
        embeds = any(self.looked_up.get(other.table) is part for other in self.parts.values())
        return NetworkBlock(
            part.name,
            BlockKind.HEAD if tied else BlockKind.EMBEDDING if embeds else BlockKind.LAYER,
            part.parameters,
            part.statistics,
            products=tuple(part.computed),
            vector=operations("vector"),
            steps=part.steps,
            training_steps=part.training_steps,
            idle=operations("idle"),
            looked_up=operations("looked_up"),
            stashed=max(stashed - output, 0.0),
            output=output,
            inside=passed * (not ends),
            transient=part.transient / self.batch,
            norms=tuple(part.norms),
            tied=tied,
            table=self.graph.tensor(part.table).nelms if part.table else 0,
        )

    def _note_tables(self, part: _Part, op: Op, read: list[str], *, is_product: bool) -> None:
        """Note tables in which ``op`` looks up, and logits that ``op`` makes or of which it takes the softmax."""
        computed = {self._source(id) for id in op.inputs if id and id not in self.fixed}
        if op.type in LOOK_UPS:
            for id in read:
                self.looked_up.setdefault(self.weights[id], part)
        elif is_product:
            part.multiplied, part.products = self.weights[read[0]], {op.outputs[0]}
            if part.multiplied in self.looked_up:
                part.table = part.multiplied
        elif op.type in _READS_NOTHING and computed & part.products:
            part.products.add(op.outputs[0])
        elif op.type in _SOFTMAXES and computed & part.products:
            part.table, part.logits = part.multiplied, {*part.products, *op.outputs}

    def _source(self, id: str) -> str:
        return self.views.get(id, id)

    def _values(self, id: str) -> float:
        return self.graph.tensor(id).nelms / self.batch

    def _count_operations(self, part: _Part, op: Op, has_weight: bool) -> None:
        flops = float(TABLE[op].cost(node_in(self.graph, op)).flops)
        if op.type in CONVOLUTIONS | PRODUCTS:
            self._count_product(part, op, flops, has_weight)
        elif not TABLE[op].elementwise:
            part.steps += 1
            part.training_steps += 1
        if op.type in CONVOLUTIONS:
            channels = self.graph.tensor(op.inputs[1]).shape[1]
            if int(op.attributes.get("group", 1)) > 1 and channels < _CHANNELS:
                part.add("idle", flops * (_CHANNELS / channels - 1))
        elif op.type in PRODUCTS:
            pass
        elif op.type in LOOK_UPS and has_weight:
            part.add("looked_up", float(self.graph.tensor(op.outputs[0]).nelms))
        else:
            elements = self.graph.tensor(op.outputs[0]).nelms
            part.add("vector", float(_VECTOR[op.type] * elements) if op.type in _VECTOR else flops)

    def _count_product(self, part: _Part, op: Op, flops: float, has_weight: bool) -> None:
        kind = "convolution" if op.type in CONVOLUTIONS else "product" if has_weight else "attention"
        ids = [id for id in op.inputs if id]
        first, second = sorted(ids[:2], key=lambda id: id in self.weights)
        other = float(self.graph.tensor(second).nelms) / (1 if has_weight else self.batch)
        data = self.graph.tensor(self._source(first)).role is Role.INPUT
        sizes = (self._values(first), other, self._values(op.outputs[0]), flops / 2 / self.batch)
        part.computed.append(BlockProduct(kind, *sizes, data=data))
        part.training_steps += len(ids) > 2  # the gradient of a bias

    def _count_parameters(self, part: _Part, op: Op, read: list[str]) -> None:
        is_norm = op.type == "BatchNormalization"
        if is_norm:
            part.norms.append(self.graph.tensor(op.inputs[1]).nelms)
        for id in read:
            weight = self.weights[id]
            tensor = self.graph.tensor(weight)
            if weight in self.counted or not tensor.dtype.is_float:
                continue
            self.counted.add(weight)
            if is_norm and id in op.inputs[3:]:
                part.statistics += tensor.nelms
            else:
                part.parameters += tensor.nelms

    def _count_values(self, part: _Part, op: Op, inputs: list[str]) -> None:
        needed = []
        if op.type in _READS_RESULT:
            needed = [op.outputs[0]]
        elif op.type not in _READS_NOTHING:
            needed = [self._source(id) for id in inputs if id not in self.fixed]
        computed = (id for id in needed if self.graph.tensor(id).role is Role.COMPUTED)
        others = (*(other.stashed for other in self.parts.values() if other is not part), part.logits)
        part.stashed.update(id for id in computed if not any(id in stashed for stashed in others))
        part.transient = max(part.transient, 2 * self.graph.tensor(op.outputs[0]).nelms)
