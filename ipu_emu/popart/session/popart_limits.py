"""PopART's limits: models that PopART rejects although the emulator could run them.

They apply to models of the Builder. Models of other front ends may use all that the emulator supports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ipu_emu.compiler.annotations import RECOMPUTE
from ipu_emu.compiler.rewriting.reserved_prefixes import GRADIENT
from ipu_emu.errors import EmulatorError, PoplarError
from ipu_emu.graph import Graph, Op, Role
from ipu_emu.graph.dtype import dtype_numbered
from ipu_emu.graph.graph import IMPORTED_FROM
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.core.node import Node, described, input_node, listed
from ipu_emu.session.options.option_enums import RecomputationType
from ipu_emu.session.options.patterns import ANY, MANDATORY, Patterns
from ipu_emu.session.options.session_options import SessionOptions

_Rule = Callable[[Node], str | None]

#: Activations of an RNN, and of the gates of an LSTM or a GRU.
_ACTIVATIONS = ("affine", "elu", "hardsigmoid", "leakyrelu", "relu", "scaledtanh", "sigmoid", "softplus", "softsign")
_KNOWN = frozenset({*_ACTIVATIONS, "softmax", "gelu", "tanh", "thresholdedrelu"})
_AGAIN = 2


def check_limits(model: Graph, options: SessionOptions, *, training: bool) -> None:
    """Raise EmulatorError, with PopART's text, for a model that PopART rejects."""
    if IMPORTED_FROM in model.metadata:
        return
    for graph, op in _nodes(model):
        rule = _RULES.get((op.domain, op.type))
        text = rule(input_node(graph, op)) if rule else None
        if text:
            raise EmulatorError(text)
    annotated = any(op.attributes.get(RECOMPUTE) == _AGAIN for _, op in _nodes(model))
    automatic = (RecomputationType.NoRecompute, RecomputationType.Pipeline)
    if training and annotated and options.autoRecomputation not in automatic:
        raise EmulatorError("A mixture of auto and manual recomputation is not supported")


def check_step(model: Graph, step: Graph, anchors: Sequence[str]) -> None:
    """Raise EmulatorError for gradients of a frozen batch normalisation, and for a step without ops."""
    if IMPORTED_FROM in model.metadata:
        return
    for op in model.ops:
        frozen = op.type == "BatchNormalization" and len(op.outputs) == 1
        if frozen and GRADIENT + op.outputs[0] in step.tensors:
            raise EmulatorError(
                f'BatchNorm Op "{op.name or described(op)}" has 1 output(s) which means it is in inference mode, but '
                "its gradient Op is being created. Name 5 outputs to train, or detach its result"
            )
    if anchors and model.ops and not step.ops and all(t.role is not Role.CONSTANT for t in step.tensors.values()):
        raise EmulatorError("All operations in the main graph were pruned, nothing to compute")


def check_arithmetic(model: Graph) -> None:
    """Raise PoplarError for arithmetic with 8-bit integers, which can only be streamed, cast and moved."""
    if IMPORTED_FROM in model.metadata:
        return
    for graph, op in _nodes(model):
        arithmetic = op.domain == "" and op.type in _ARITHMETIC
        for tensor in (graph.tensors[id] for id in op.inputs if arithmetic and id in graph.tensors):
            if tensor.role is not Role.CONSTANT and tensor.dtype.name in ("INT8", "UINT8"):
                raise PoplarError(
                    f"{described(op)}: {tensor.id} is {tensor.dtype}, with which IPUs do not compute; cast it"
                )


def check_replaced(model: Graph, step: Graph, patterns: Patterns) -> None:
    """Raise EmulatorError for an op of ``model``, or a gradient in ``step``, whose mandatory pattern is disabled."""
    for name in patterns.missing():
        replaced, type, index = MANDATORY[name]
        for op in model.ops:
            read = op.inputs if index == ANY else () if index is None else op.inputs[index : index + 1]
            if op.type != type or (read and all(GRADIENT + id not in step.tensors for id in read)):
                continue
            identifier = f"{op.domain or 'ai.onnx'}.{replaced}:{op.version}" if index is None else ""
            raise EmulatorError(
                f"Could not create opx for '{identifier or f'ai.graphcore.{replaced}:1'}'. This op should have been "
                f"removed by pattern {name}"
            )


_ARITHMETIC = frozenset({
    "Abs", "Add", "AveragePool", "Ceil", "Conv", "Div", "Equal", "Exp", "Floor", "Gemm", "Greater", "Less", "MatMul",
    "Max", "Mean", "Min", "Mod", "Mul", "Neg", "Pow", "Relu", "Sign", "Sqrt", "Sub", "Sum", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
})  # fmt: skip


def _nodes(graph: Graph) -> Iterator[tuple[Graph, Op]]:
    """The ops of a graph and of the bodies in it, each with its graph."""
    for op in graph.ops:
        yield graph, op
        for value in op.attributes.values():
            if isinstance(value, Graph):
                yield from _nodes(value)


# Recurrent layers


def _rnn(node: Node) -> str | None:
    attributes, what = node.op.attributes, described(node.op)
    activations = [str(name) for name in attributes.get("activations", [])]
    if len(activations) > 1:
        return f"{what} only supports 1 activation, {len(activations)} were specified"
    for name in activations:
        if name.lower() not in _KNOWN:
            return f"Activation type '{name}' is not supported for {what}"
    for name in ("activation_alpha", "activation_beta", "clip"):
        if attributes.get(name):
            return f"Attribute `{name}' of {what} is not supported"
    if attributes.get("direction", "forward") != "forward":
        return f"{what} only supports `forward' direction"
    return _hidden_size(node)


def _lstm(node: Node) -> str | None:
    attributes = node.op.attributes
    activations = [str(name) for name in attributes.get("activations", [])]
    if activations and len(activations) not in (1, 3):
        return f"Too many activations ({len(activations)}) specified. Number of activations should be 1 or 3."
    for name in activations:
        if name.lower() not in _KNOWN:
            return f"Activation type '{name}' is not supported"
    if len(activations) == 3 and activations[1] != activations[2]:
        return "LSTM activations must be the same for output and forget gates."
    if attributes.get("direction", "forward") != "forward":
        return "LSTMOp attribute `direction' must be unset or `forward'"
    for name in ("activation_alpha", "activation_beta", "clip"):
        if attributes.get(name):
            return f"LSTMOp attribute `{name}' is not supported"
    if attributes.get("input_forget", 0):
        return "LSTMOp attribute `input_forget' must be set to 0"
    return _hidden_size(node)


def _hidden_size(node: Node) -> str | None:
    hidden_size, weights = node.op.attributes.get("hidden_size"), node.input(2).shape
    if hidden_size is not None and len(weights) == 3 and hidden_size != weights[2]:
        return (
            f"hidden_size attribute passed to {described(node.op)} ({hidden_size}) does not match hidden size "
            f"calculated from recurrenceWeights tensor ({weights[2]})."
        )
    return None


# Random numbers


def _random(node: Node) -> str | None:
    if node.op.attributes.get("seed") is not None:
        return f"{described(node.op)}: Optional seed attribute is not supported. Use session::setRandomSeed instead."
    dtype = node.op.attributes.get("dtype")
    if dtype is not None and dtype_numbered(int(dtype)).name == "DOUBLE":
        return "The data type DOUBLE is not supported in Poplar"
    return None


# Windows


def _average_pool(node: Node) -> str | None:
    return "`count_include_pad` is not supported" if node.op.attributes.get("count_include_pad", 0) else None


def _undilated(text: str) -> _Rule:
    """Return the rule of an op whose dilations must be 1; ``text`` may have a place for them."""

    def rule(node: Node) -> str | None:
        dilations: Sequence[int] = node.op.attributes.get("dilations") or []
        return text.format(listed(dilations)) if set(dilations) - {1} else None

    return rule


# Others


def _clip(node: Node) -> str | None:
    for index, name in ((1, "min"), (2, "max")):
        if node.has_input(index) and node.values[index] is None:
            op = node.op
            return (
                f"Op {op.name}({op.domain or 'ai.onnx'}.{op.type}:{op.version}), inputs=[{', '.join(op.inputs)}] "
                f"currently only supports constant min/max parameters. Input '{name}' ({op.inputs[index]}) "
                "has no data."
            )
    return None


def _batch_norm(node: Node) -> str | None:
    rank = node.input(0).rank if node.op.attributes.get("spatial", 1) else 3
    return f"batch norm requires X to have a rank >= 3.  x has rank {rank}" if rank < 3 else None


def _reverse(node: Node) -> str | None:
    dimensions = list(node.op.attributes.get("dimensions", []))
    for dimension in dimensions:
        if dimensions.count(dimension) > 1:
            return f"ReverseOp '{described(node.op)}' has the dimension {dimension} more than once; give it once"
        if dimension < 0:
            return (
                f"ReverseOp '{described(node.op)}' invalid dimension '{dimension}'. Only positive dimensions are "
                "supported"
            )
    return None


def _constant(node: Node) -> str | None:
    if "sparse_value" in node.op.attributes:
        return "The Constant op attribute 'sparse_value' is not supported."
    return None


_RULES: dict[tuple[str, str], _Rule] = {
    ("", "AveragePool"): _average_pool,
    ("", "BatchNormalization"): _batch_norm,
    ("", "Clip"): _clip,
    ("", "Constant"): _constant,
    ("", "ConvTranspose"): _undilated("Non default value for dilations is not supported."),
    ("", "GRU"): _hidden_size,
    ("", "LSTM"): _lstm,
    ("", "MaxPool"): _undilated(
        "MaxPool has dilations {}. Dilations of value other than 1 are currently not supported."
    ),
    ("", "RNN"): _rnn,
    ("", "RandomNormal"): _random,
    ("", "RandomNormalLike"): _random,
    ("", "RandomUniform"): _random,
    ("", "RandomUniformLike"): _random,
    (GRAPHCORE, "BatchNormalization"): _batch_norm,
    (GRAPHCORE, "Reverse"): _reverse,
}
