"""Graph network: the blocks of any forward graph, read off its ops.

a block       from an op that multiplies by weights up to the next one
a layer       each block: blocks may be divided between IPUs anywhere
kept          what the gradients of the ops read: results of functions such as Relu, operands of the others
logits        products of weights whose softmax is taken, in one piece: it is not kept for the gradient
a tied head   a product of a table that is looked up in too: both blocks are on one IPU
not counted   ops on weights alone, which are computed once, and views
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Op, Role
from ipu_emu.ops import TABLE
from ipu_emu.predict.networks.block import Block, BlockKind, Network
from ipu_emu.program.memory_plan import node_in

__all__ = ["graph_network"]

_CONVOLUTIONS = frozenset(("Conv", "ConvTranspose", "MultiConv"))
_PRODUCTS = frozenset(("MatMul", "Gemm", "MatMulT", "RNN", "GRU", "LSTM"))
_LOOK_UPS = frozenset(("Gather", "GatherElements", "GatherND"))
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
#: Operations for each element of the result, as the blocks of named networks count them; others by their own cost.
_VECTOR = {
    "BatchNormalization": 10,
    **dict.fromkeys(("LayerNormalization", "GroupNormalization", "InstanceNormalization"), 8),
    **dict.fromkeys(("Softmax", "LogSoftmax"), 6),
    **dict.fromkeys(("Gelu", "GeluErf", "GeluTanh"), 10),
}
#: Channels that a matrix unit multiplies at a time.
_CHANNELS = 16

#: Element types of inputs by the names that jobs use.
_DTYPES = {"uint8": "uint8", "int8": "uint8", "float16": "float16", "int32": "int32", "int64": "int32"}


@dataclass
class _Part:
    """The ops of a block so far."""

    name: str
    parameters: int = 0
    statistics: int = 0
    operations: dict[str, float] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    output: str = ""
    transient: int = 0
    norms: list[int] = field(default_factory=list)
    has_product: bool = False
    multiplied: str = ""
    products: set[str] = field(default_factory=set)
    logits: set[str] = field(default_factory=set)
    table: str = ""

    def add(self, kind: str, amount: float) -> None:
        self.operations[kind] = self.operations.get(kind, 0.0) + amount


def graph_network(graph: Graph, name: str, batch: int) -> Network:
    """The network of a forward pass for ``batch`` samples; EmulatorError for a graph without ops on its inputs."""
    walk = _Walk(graph, batch)
    for op in graph.ops:
        walk.visit(op)
    blocks = tuple(walk.block(part) for part in walk.parts)
    if not blocks:
        raise EmulatorError(f"{name} computes nothing from its inputs; there is nothing to predict")
    inputs = graph.with_role(Role.INPUT)
    convolution, attention = (sum(getattr(block, kind) for block in blocks) for kind in ("convolution", "attention"))
    family = "convolutional" if convolution > attention else "transformer" if attention else "fully connected"
    values = sum(tensor.nelms for tensor in inputs) // batch
    dtype = max((str(tensor.dtype.name) for tensor in inputs), key=len, default="float32")
    return Network(name, family, "samples", blocks, values, _DTYPES.get(dtype, "float"), label_bytes=0)


class _Walk:
    """The ops of a graph in order, as parts of blocks."""

    def __init__(self, graph: Graph, batch: int) -> None:
        self.graph, self.batch = graph, batch
        self.parts: list[_Part] = []
        self.counted: set[str] = set()
        self.fixed = {tensor.id for role in (Role.WEIGHT, Role.CONSTANT) for tensor in graph.with_role(role)}
        self.weights = {tensor.id: tensor.id for tensor in graph.with_role(Role.WEIGHT)}
        self.views: dict[str, str] = {}
        self.looked_up: dict[str, _Part] = {}

    def visit(self, op: Op) -> None:
        """Count one op."""
        inputs = [id for id in op.inputs if id]
        if inputs and all(id in self.fixed for id in inputs):
            self.fixed.update(op.outputs)
            source = next((self.weights[id] for id in inputs if id in self.weights), None)
            if source is not None:
                self.weights.update(dict.fromkeys(op.outputs, source))
            return
        view_of = TABLE[op].view_of
        if view_of is not None:
            self.views[op.outputs[0]] = self._source(op.inputs[view_of])
            return
        read = [id for id in inputs if id in self.weights]
        is_product = op.type in _CONVOLUTIONS | _PRODUCTS and bool(read)
        if not self.parts or (is_product and self.parts[-1].has_product):
            self.parts.append(_Part(op.outputs[0]))
        part = self.parts[-1]
        part.has_product |= is_product
        self._note_tables(part, op, read, is_product=is_product)
        self._count_operations(part, op, bool(read))
        self._count_parameters(part, op, read)
        self._count_values(part, op, inputs)

    def block(self, part: _Part) -> Block:
        """The finished block, for one sample."""
        output = self._values(part.output)
        kept = sum(self._values(id) for id in part.kept)

        def each(kind: str) -> float:
            return part.operations.get(kind, 0.0) / self.batch

        tied = part.table in self.looked_up
        embeds = any(self.looked_up.get(other.table) is part for other in self.parts)
        return Block(
            part.name,
            BlockKind.HEAD if tied else BlockKind.EMBEDDING if embeds else BlockKind.LAYER,
            part.parameters,
            part.statistics,
            convolution=each("convolution"),
            product=each("product"),
            attention=each("attention"),
            vector=each("vector"),
            idle=each("idle"),
            looked_up=each("looked_up"),
            kept=max(kept - output, 0.0),
            output=output,
            transient=part.transient / self.batch,
            norms=tuple(part.norms),
            tied=tied,
            table=self.graph.tensor(part.table).nelms if part.table else 0,
        )

    def _note_tables(self, part: _Part, op: Op, read: list[str], *, is_product: bool) -> None:
        """Note tables in which ``op`` looks up, and logits that ``op`` makes or of which it takes the softmax."""
        computed = {self._source(id) for id in op.inputs if id and id not in self.fixed}
        if op.type in _LOOK_UPS:
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
        if op.type in _CONVOLUTIONS:
            part.add("convolution", flops)
            channels = self.graph.tensor(op.inputs[1]).shape[1]
            if int(op.attributes.get("group", 1)) > 1 and channels < _CHANNELS:
                part.add("idle", flops * (_CHANNELS / channels - 1))
        elif op.type in _PRODUCTS:
            part.add("product" if has_weight else "attention", flops)
        elif op.type in _LOOK_UPS and has_weight:
            part.add("looked_up", float(self.graph.tensor(op.outputs[0]).nelms))
        else:
            elements = self.graph.tensor(op.outputs[0]).nelms
            part.add("vector", float(_VECTOR[op.type] * elements) if op.type in _VECTOR else flops)

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
        part.output = op.outputs[0]
        needed = []
        if op.type in _READS_RESULT:
            needed = [op.outputs[0]]
        elif op.type not in _READS_NOTHING:
            needed = [self._source(id) for id in inputs if id not in self.fixed]
        computed = (id for id in needed if self.graph.tensor(id).role is Role.COMPUTED)
        others = (*(other.kept for other in self.parts[:-1]), part.logits)
        part.kept.update(id for id in computed if not any(id in kept for kept in others))
        part.transient = max(part.transient, 2 * self.graph.tensor(op.outputs[0]).nelms)
