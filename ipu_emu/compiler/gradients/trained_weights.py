"""Trained weights: selects the initializers that are trained, and reports those that are probably constants.

An ONNX file does not list the parameters among its initializers. Without a list every floating-point initializer is
trained, as in PopART: also scalars, masks and frequencies that were buffers, frozen parameters, and equal parameters
that the exporter merged into one. Signs of this in a model are reported; nothing is changed. If the model lists the
parameters of its module, exactly these are trained.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Op, Role, Tensor
from ipu_emu.graph.graph import IMPORTED_FROM, SIGNATURE
from popdist_py.messages.suggestion import did_you_mean

_CURE = (
    "List what should be trained in the session option trainedWeights; nothing else "
    "is then trained. torch.onnx.export with "
    "training=TrainingMode.TRAINING, do_constant_folding=False, dynamo=False keeps parameters apart, under their "
    "names in named_parameters(), and batch normalisations in their training form"
)
_UNOPTIMISED = (
    "Export with dynamo=True, optimize=False, which keeps parameters apart under their names in named_parameters(), "
    "and give batch normalisations their training form with GraphTransformer.prepareNodesForTraining()"
)
_NAMES_SHOWN = 6

#: Names that frameworks give to buffers.
_BUFFER = re.compile(
    r"(^|[._/])(running_(mean|var)|num_batches_tracked|inv_freq|freqs(_cis)?|masked_bias|\w*mask|(sin|cos)(_cached)?"
    r"|position_ids|relative_position_index)$"
)
_LARGE = 1e4  # masked elements of an attention mask are beyond this
#: Ops that only move values, and ops without a gradient.
_VIEWS = frozenset({"Identity", "Slice", "Reshape", "Unsqueeze", "Squeeze", "Transpose", "Cast", "Expand", "Flatten"})
_ENDS = frozenset({"Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal", "Not", "Shape", "Size"})
#: A word embedding that is the output layer too.
_TIED = frozenset({"Gather", "Transpose", "MatMul", "Gemm"})
#: Ops whose results are neither probabilities nor their logarithms.
_UNBOUNDED = frozenset({"MatMul", "Gemm", "Add", "Sub", "Conv", "BatchNormalization", "LayerNormalization", "Relu"})
_NEEDED = {False: ("Softmax", {"LogSoftmax"}), True: ("LogSoftmax", {"Softmax"})}


@dataclass(frozen=True)
class _Reader:
    """An op that reads a tensor as its operand ``index``."""

    op: Op
    index: int


def check_trained(graph: Graph, trained: Collection[str]) -> None:
    """Raise EmulatorError for an id that is not a floating-point initializer."""
    weights = {tensor.id: tensor for tensor in graph.with_role(Role.WEIGHT)}
    for id in trained:
        if id not in weights:
            hint = did_you_mean(id, weights) or f"; it has {', '.join(weights) or 'none'}"
            raise EmulatorError(f"'{id}' cannot be trained: it is not an initializer of the model{hint}")
        if not weights[id].dtype.is_float:
            raise EmulatorError(f"{weights[id]} cannot be trained; only floating-point initializers can be")


def doubts(graph: Graph, trained: Collection[str] | None) -> str:
    """Describe weights that are probably trained, or not trained, by mistake, with the remedy; '' without any.

    With a list of ``trained`` weights, and in models that were not imported, only the losses are checked.
    """
    seen = _Doubts(graph)
    lines = list(seen.of_losses())
    if trained is None and IMPORTED_FROM in graph.metadata:
        lines = [*seen.of_weights(), *seen.of_batch_norms(), *lines]
    return "\n  ".join(["This model may not be trained as intended:", *lines]) if lines else ""


class _Doubts:
    def __init__(self, graph: Graph) -> None:
        self.graph, self.makers, self.module = graph, graph.producers(), ExportedModule.of(graph)
        self.readers: dict[str, list[_Reader]] = {}
        for op in graph.ops:
            for index, id in enumerate(op.inputs):
                self.readers.setdefault(id, []).append(_Reader(op, index))

    def of_weights(self) -> Iterator[str]:
        weights = [w for w in self.graph.with_role(Role.WEIGHT) if w.dtype.is_float and self.gets_gradient(w.id)]
        if self.module is not None:
            yield from self.of_module(self.module, weights)
            return
        scalars = [w.id for w in weights if not w.shape]
        buffers = [w.id for w in weights if w.shape and self.is_buffer(w)]
        merged = {w.id: self.users(w.id) for w in weights if self.is_merged(w)}
        if scalars:
            yield f"scalars are trained: {_named(scalars)}"
        if buffers:
            yield f"initializers that look like buffers (by name, shape or values) are trained: {_named(buffers)}"
        if merged:
            which = [f"{id} (read by {_named(users)})" for id, users in merged.items()]
            yield f"equal initializers were merged and are trained as one: {_named(which)}"
        if scalars or buffers or merged:
            yield _CURE

    def of_module(self, module: ExportedModule, weights: Sequence[Tensor]) -> Iterator[str]:
        """Doubts about a model that lists the parameters of its module: which of them an optimisation has removed."""
        lost, folded = module.lost(self.graph), module.folded_norms(self.graph)
        signs = {
            "equal ones were merged and are trained as one": [w.id for w in weights if self.is_read_often(w)],
            "values computed from them are not trained": [w.id for w in weights if module.foreign(w.id)],
            "biases that were 0 were removed": module.lost_biases(self.graph),
        }
        reasons = [f"{text}: {_named(ids)}" for text, ids in signs.items() if lost and ids]
        if reasons:
            yield f"the model lacks the parameters {_named(lost)}; {'; '.join(reasons)}"
        if folded:
            yield f"an exporter folded batch normalisations into other layers: {_named(folded)}"
        if reasons or folded:
            yield _UNOPTIMISED

    def is_read_often(self, weight: Tensor) -> bool:
        """Whether all elements are equal, as in fresh biases and scales, and several nodes read them."""
        data, readers = self.graph.data[weight.id], self.readers.get(weight.id, [])
        return len(readers) > 1 and data.size > 0 and bool(np.all(data == data.flat[0]))

    def of_batch_norms(self) -> Iterator[str]:
        inference = [op.label for op in self.graph.ops if op.type == "BatchNormalization" and len(op.outputs) == 1]
        folded = [op.label for op in self.graph.ops if op.type == "Conv" and op.inputs[1].startswith("onnx::Conv")]
        if inference:
            yield (
                f"batch normalisations are in their inference form, with fixed statistics: {_named(inference)}. "
                "Export for training, or use GraphTransformer.prepareNodesForTraining()"
            )
        if folded:
            yield (
                f"an exporter folded what followed convolutions into them, probably batch normalisations: "
                f"{_named(folded)}. Export for training, without constant folding"
            )

    def of_losses(self) -> Iterator[str]:
        for op in self.graph.ops:
            if op.type not in ("Nll", "NegativeLogLikelihoodLoss"):
                continue
            logarithms = op.type != "Nll" or bool(op.attributes.get("inputIsLogProbability", 0))
            needed, wrong = _NEEDED[logarithms]
            source = self.source(op.inputs[0])
            if source is not None and source.type in _UNBOUNDED | wrong:
                yield f"{op.label} needs the result of a {needed}, and gets that of {source.label}: insert a {needed}"

    def gets_gradient(self, id: str) -> bool:
        """Whether a gradient can reach a tensor from any of its readers."""
        return any(
            self.gets_gradient(op.outputs[0]) if op.type in _VIEWS else not self.is_end(_Reader(op, index))
            for op, index in ((reader.op, reader.index) for reader in self.readers.get(id, []))
        )

    def is_end(self, reader: _Reader) -> bool:
        statistics = reader.op.type == "BatchNormalization" and reader.index > 2 and len(reader.op.outputs) > 1
        return reader.op.type in _ENDS or statistics

    def is_buffer(self, weight: Tensor) -> bool:
        if _BUFFER.search(weight.id):
            return True
        square = weight.rank > 3 and weight.shape[:2] == (1, 1) and weight.shape[-1] == weight.shape[-2]
        data = self.graph.data[weight.id]
        return square or bool(weight.rank > 1 and data.size and float(np.min(data)) <= -_LARGE)

    def is_merged(self, weight: Tensor) -> bool:
        """Whether all elements are equal, as in fresh biases and scales, and several nodes read them differently."""
        data, readers = self.graph.data[weight.id], self.readers.get(weight.id, [])
        types = {reader.op.type for reader in readers}
        unlike = len({(reader.op.type, reader.index) for reader in readers}) > 1 and not types <= _TIED
        merged = len(readers) > 1 and ("Identity" in types or unlike)
        return merged and data.size > 0 and bool(np.all(data == data.flat[0]))

    def users(self, id: str) -> list[str]:
        return [reader.op.label for reader in self.readers[id]]

    def source(self, id: str) -> Op | None:
        """The op that computes a tensor, skipping ops that only move values."""
        op = self.makers.get(id)
        while op is not None and op.type in _VIEWS:
            op = self.makers.get(op.inputs[0])
        return op


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN])
    return shown if len(names) <= _NAMES_SHOWN else f"{shown} and {len(names) - _NAMES_SHOWN} more"


_LINE = re.compile(r"^\S+: (PARAMETER|BUFFER|CONSTANT_TENSOR) target='([^'\n]+)'", re.MULTILINE)
_STATISTICS = ".running_mean"


@dataclass(frozen=True)
class ExportedModule:
    """The names in the module of its parameters, buffers and plain tensor attributes.

    ``torch.onnx.export(..., dynamo=True)`` writes them into the model, with the names of ``named_parameters()``, so
    that buffers and constants can be told from parameters. Parameters may be absent: tied or unused ones, and those
    that the exporter's optimisation has merged with equal ones or folded into others.
    """

    parameters: tuple[str, ...]
    buffers: tuple[str, ...]
    constants: tuple[str, ...]

    @classmethod
    def of(cls, graph: Graph) -> ExportedModule | None:
        """Return the module of a model; None if the model does not list its parameters."""
        entries = _LINE.findall(graph.metadata.get(SIGNATURE, "").partition("# outputs")[0])
        kinds = ("PARAMETER", "BUFFER", "CONSTANT_TENSOR")
        return cls(*(tuple(name for label, name in entries if label == kind) for kind in kinds)) if entries else None

    def trained(self, graph: Graph) -> frozenset[str]:
        """The initializers that are parameters."""
        weights = {tensor.id for tensor in graph.with_role(Role.WEIGHT) if tensor.dtype.is_float}
        return frozenset(weights.intersection(self.parameters))

    def lost(self, graph: Graph) -> list[str]:
        """The parameters that the model does not have."""
        return [name for name in self.parameters if name not in graph.tensors]

    def lost_biases(self, graph: Graph) -> list[str]:
        """The parameters that the model lacks though it has the weight of their layer: they are in use."""
        return [
            name
            for name in self.lost(graph)
            if name.endswith(".bias") and name.removesuffix("bias") + "weight" in graph.tensors
        ]

    def foreign(self, id: str) -> bool:
        """Whether an initializer does not belong to the module."""
        return id not in {*self.parameters, *self.buffers, *self.constants}

    def folded_norms(self, graph: Graph) -> list[str]:
        """The batch normalisations that the model does not have."""
        norms = [name.removesuffix(_STATISTICS) for name in self.buffers if name.endswith(_STATISTICS)]
        return [name for name in norms if name + _STATISTICS not in graph.tensors]
