"""Calls of the Builder: names, order of parameters, defaults and results, as the reference lists them."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest

from ipu_emu import popart
from ipu_emu.popart.builder.ai_graphcore import AI_GRAPHCORE
from ipu_emu.popart.builder.ai_onnx import AI_ONNX
from ipu_emu.popart.builder.signatures import REQUIRED, signature

_BOOL, _INT = np.ones((2, 3), bool), np.arange(6, dtype=np.int32).reshape(2, 3)
_FLOAT = np.linspace(0.1, 0.9, 6, dtype=np.float32).reshape(2, 3)
_OFFSET = np.array([1], np.uint32)
_IMAGE, _KERNEL = np.ones((2, 4, 5, 5), np.float32), np.ones((6, 4, 3, 3), np.float32)
_CHANNELS = [_IMAGE, *(np.ones(4, np.float32) for _ in range(4))]


def _long(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@dataclass(frozen=True)
class Row:
    """``names`` in opsets ``first`` to ``last``: parameters after ``args``; ``values`` for those without a default.

    ``inputs`` are examples: the first an input, the others variables, or constants if they are INT64. ``shapes`` are
    those of the outputs; a list for ops that return one.
    """

    names: str
    first: int
    last: int
    parameters: str
    values: tuple[Any, ...]
    inputs: list[np.ndarray]
    shapes: list[int] | list[list[int]]
    domain: str = "aiOnnx"

    def calls(self) -> list[tuple[int, str]]:
        """(opset, name) of each call."""
        return [(opset, name) for opset in range(self.first, self.last + 1) for name in self.names.split()]

    def __str__(self) -> str:
        return f"{self.names.split()[0]}-{self.first}"


def _graphcore(names: str, parameters: str, values: tuple[Any, ...], inputs: list[np.ndarray], shapes: Any) -> Row:
    return Row(names, 1, 1, parameters, values, inputs, shapes, "aiGraphcore")


_UNARY = "relu sigmoid tanh exp log sqrt neg abs floor ceil reciprocal softplus softsign identity"
_ARITHMETIC, _LOGICAL = "add sub mul div pow equal greater less", "logical_and logical_or logical_xor"
_REDUCED = "reducesum reducemean reducemax reducemin reducesumsquare reduceprod reducel1 reducel2 reducelogsum"
_POOL = "kernel_shape, {}pads=[], {}strides=[]"
_NORM = "num_outputs, epsilon=1e-05, {}momentum=0.9{}"
_REDUCTION = "reduction='Mean'"
_KERNEL_SHAPE = ([3, 3],)

ROWS = [
    Row(_UNARY, 6, 11, "", (), [_FLOAT], [2, 3]),
    Row("sin cos tan", 7, 11, "", (), [_FLOAT], [2, 3]),
    Row("erf sign isnan", 9, 11, "", (), [_FLOAT], [2, 3]),
    Row(_ARITHMETIC, 6, 6, "axis=None, broadcast=0", (), [_FLOAT, _FLOAT], [2, 3]),
    Row(_ARITHMETIC, 7, 11, "", (), [_FLOAT, _FLOAT[:1]], [2, 3]),
    Row(_LOGICAL, 6, 6, "axis=None, broadcast=0", (), [_BOOL, _BOOL], [2, 3]),
    Row(_LOGICAL, 7, 11, "", (), [_BOOL, _BOOL[:1]], [2, 3]),
    Row("logical_not", 6, 11, "", (), [_BOOL], [2, 3]),
    Row("where", 9, 11, "", (), [_BOOL, _FLOAT, _FLOAT], [2, 3]),
    Row("sum mean min max", 6, 11, "", (), [_FLOAT, _FLOAT, _FLOAT], [2, 3]),
    Row("clip", 6, 10, "max=3.4028234663852886e+38, min=-3.4028234663852886e+38", (), [_FLOAT], [2, 3]),
    Row("clip", 11, 11, "", (), [_FLOAT], [2, 3]),
    Row("leakyrelu", 6, 11, "alpha=0.01", (), [_FLOAT], [2, 3]),
    Row("elu", 6, 11, "alpha=1.0", (), [_FLOAT], [2, 3]),
    Row("matmul", 6, 11, "", (), [_FLOAT, _FLOAT.T.copy()], [2, 2]),
    Row(
        "gemm",
        6,
        6,
        "alpha=1.0, beta=1.0, broadcast=0, transA=0, transB=0",
        (),
        [_FLOAT, _FLOAT.T, _FLOAT[:, :2]],
        [2, 2],
    ),
    Row("gemm", 7, 11, "alpha=1.0, beta=1.0, transA=0, transB=0", (), [_FLOAT, _FLOAT.T, _FLOAT[:, :2]], [2, 2]),
    Row(
        "conv",
        6,
        11,
        "dilations=[], group=1, kernel_shape=[], pads=[], strides=[]",
        (),
        [_IMAGE, _KERNEL],
        [2, 6, 3, 3],
    ),
    Row("maxpool", 6, 7, _POOL.format("", ""), _KERNEL_SHAPE, [_IMAGE], [2, 4, 3, 3]),
    Row(
        "maxpool",
        8,
        9,
        "num_outputs, " + _POOL.format("", "storage_order=0, "),
        (1, [3, 3]),
        [_IMAGE],
        [[2, 4, 3, 3]],
    ),
    Row(
        "maxpool",
        10,
        11,
        "num_outputs, " + _POOL.format("ceil_mode=0, dilations=[], ", "storage_order=0, "),
        (2, [3, 3]),
        [_IMAGE],
        [[2, 4, 3, 3]] * 2,
    ),
    Row("averagepool", 6, 6, _POOL.format("", ""), _KERNEL_SHAPE, [_IMAGE], [2, 4, 3, 3]),
    Row("averagepool", 7, 9, _POOL.format("count_include_pad=0, ", ""), _KERNEL_SHAPE, [_IMAGE], [2, 4, 3, 3]),
    Row(
        "averagepool",
        10,
        11,
        _POOL.format("ceil_mode=0, count_include_pad=0, ", ""),
        _KERNEL_SHAPE,
        [_IMAGE],
        [2, 4, 3, 3],
    ),
    Row("globalaveragepool globalmaxpool", 6, 11, "", (), [_IMAGE], [2, 4, 1, 1]),
    Row("softmax logsoftmax", 6, 11, "axis=1", (), [_FLOAT], [2, 3]),
    Row(f"{_REDUCED} reducelogsumexp", 6, 11, "axes=None, keepdims=1", (), [_FLOAT], [1, 1]),
    Row("argmax argmin", 6, 11, "axis=0, keepdims=1", (), [_FLOAT], [1, 3]),
    Row("topk", 6, 9, "k, axis=-1", (2,), [_FLOAT], [[2, 2], [2, 2]]),
    Row("topk", 10, 10, "axis=-1", (), [_FLOAT, _long(2)], [[2, 2], [2, 2]]),
    Row("topk", 11, 11, "axis=-1, largest=1, sorted=1", (), [_FLOAT, _long(2)], [[2, 2], [2, 2]]),
    Row(
        "batchnormalization",
        6,
        6,
        _NORM.format("is_test=0, ", ", spatial=1"),
        (5,),
        _CHANNELS,
        [[2, 4, 5, 5], [4], [4], [4], [4]],
    ),
    Row(
        "batchnormalization",
        7,
        8,
        _NORM.format("", ", spatial=1"),
        (5,),
        _CHANNELS,
        [[2, 4, 5, 5], [4], [4], [4], [4]],
    ),
    Row("batchnormalization", 9, 11, _NORM.format("", ""), (1,), _CHANNELS, [[2, 4, 5, 5]]),
    Row("dropout", 6, 6, "num_outputs, is_test=0, ratio=0.5", (1,), [_FLOAT], [[2, 3]]),
    Row("dropout", 7, 11, "num_outputs, ratio=0.5", (2,), [_FLOAT], [[2, 3], [2, 3]]),
    Row("reshape", 6, 11, "", (), [_FLOAT, _long(-1, 2)], [3, 2]),
    Row("transpose", 6, 11, "perm=[]", (), [_FLOAT], [3, 2]),
    Row("flatten", 6, 11, "axis=1", (), [_IMAGE], [2, 100]),
    Row("squeeze", 6, 11, "axes=[]", (), [_FLOAT[:1]], [3]),
    Row("unsqueeze", 6, 11, "axes", ([0],), [_FLOAT], [1, 2, 3]),
    Row("concat", 6, 11, "axis", (1,), [_FLOAT, _FLOAT], [2, 6]),
    Row("split", 6, 11, "num_outputs, axis=0, split=[]", (2,), [_FLOAT], [[1, 3], [1, 3]]),
    Row("slice", 6, 9, "ends, starts, axes=[]", ([2], [1]), [_FLOAT], [1, 3]),
    Row("slice", 10, 11, "", (), [_FLOAT, _long(1), _long(2)], [1, 3]),
    Row("gather", 6, 11, "axis=0", (), [_FLOAT, _long(1)], [1, 3]),
    Row("expand", 8, 11, "", (), [_FLOAT, _long(4, 2, 3)], [4, 2, 3]),
    Row("tile", 6, 11, "", (), [_FLOAT, _long(2, 1)], [4, 3]),
    Row("pad", 6, 10, "pads, mode='constant', value=0.0", ([1, 0, 1, 0],), [_FLOAT], [4, 3]),
    Row("pad", 11, 11, "mode='constant'", (), [_FLOAT, _long(1, 0, 1, 0)], [4, 3]),
    Row("onehot", 9, 11, "axis=-1", (), [_INT, _long(6), _FLOAT[0, :2]], [2, 3, 6]),
    Row("cast", 6, 11, "to", ("FLOAT16",), [_FLOAT], [2, 3]),
    Row("shape", 6, 11, "", (), [_FLOAT], [2]),
    Row("size", 6, 11, "", (), [_FLOAT], []),
    Row(
        "convtranspose",
        6,
        11,
        "dilations=[], group=1, kernel_shape=[], output_padding=[], output_shape=[], pads=[], strides=[]",
        (),
        [_IMAGE, np.ones((4, 6, 3, 3), np.float32)],
        [2, 6, 7, 7],
    ),
    Row("instancenormalization", 6, 11, "epsilon=1e-05", (), _CHANNELS[:3], [2, 4, 5, 5]),
    Row("cumsum", 11, 11, "exclusive=0, reverse=0", (), [_FLOAT, _long(1)], [2, 3]),
    _graphcore("l1loss", f"lambda, {_REDUCTION}", (0.5,), [_FLOAT], []),
    _graphcore(
        "nllloss", f"{_REDUCTION}, ignoreIndex=None, inputIsLogProbability=False", (), [_FLOAT, _INT[0, :2]], []
    ),
    _graphcore("identityloss", _REDUCTION, (), [_FLOAT], []),
    _graphcore("scale", "scale", (2.0,), [_FLOAT], [2, 3]),
    _graphcore("nop detach gelu geluerf", "", (), [_FLOAT], [2, 3]),
    _graphcore("groupnormalization", "num_groups, epsilon=1e-05", (2,), _CHANNELS[:3], [[2, 4, 5, 5], [4], [4]]),
    _graphcore("batchnormalization", "num_outputs, epsilon=1e-05, momentum=0.9", (1,), _CHANNELS, [[2, 4, 5, 5]]),
    _graphcore("dynamicslice", "axes, sizes, noOverlap=0", ([0], [1]), [_FLOAT, _OFFSET], [1, 3]),
    _graphcore("dynamicupdate", "axes, sizes, noOverlap=0", ([0], [1]), [_FLOAT, _OFFSET, _FLOAT[:1]], [2, 3]),
    _graphcore("dynamicadd", "axes, sizes", ([0], [1]), [_FLOAT, _OFFSET, _FLOAT[:1]], [2, 3]),
    _graphcore("dynamiczero", "axes, sizes", ([0], [1]), [_FLOAT, _OFFSET], [2, 3]),
    _graphcore("replicatedallreduce", "collectiveOperator=None, commGroup=None", (), [_FLOAT], [2, 3]),
    _graphcore("replicatedreducescatter", "collectiveOperator=None, commGroup=None", (), [_FLOAT], [6]),
    _graphcore("reshape", "shape", ([3, 2],), [_FLOAT], [3, 2]),
    _graphcore("slice", "ends, starts, axes=[]", ([2], [1], [0]), [_FLOAT], [1, 3]),
]

_CALLS = [
    (row, opset, name) for row in ROWS for opset in range(row.first, row.last + 1) for name in row.names.split()
]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_parameters(row: Row) -> None:
    table = AI_GRAPHCORE if row.domain == "aiGraphcore" else AI_ONNX
    for opset, name in row.calls():
        defaults = signature(name, table, opset).defaults
        shown = [key if value is REQUIRED else f"{key}={value!r}" for key, value in defaults.items()]
        assert ", ".join(shown) == row.parameters, f"{name} of opset {opset}"


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_calls_by_position(row: Row) -> None:
    """Every attribute by position and the debug context after them; ONNX's checker accepts the model."""
    for opset, name in row.calls():
        builder = popart.Builder()
        domain = builder.aiGraphcore if row.domain == "aiGraphcore" else getattr(builder, f"aiOnnxOpset{opset}")
        ids = [_added(builder, opset, index, value) for index, value in enumerate(row.inputs)]
        defaults = list(signature(name, domain.table, opset).defaults.values())
        values = [*row.values, *defaults[len(row.values) :]]
        ids_returned = getattr(domain, name)(ids, *values, "context")
        listed = bool(row.shapes) and isinstance(row.shapes[0], list)
        assert isinstance(ids_returned, list) == listed, f"{name} of opset {opset}"
        outputs = ids_returned if isinstance(ids_returned, list) else [ids_returned]
        shapes = [builder.getTensorShape(id) for id in outputs]
        assert shapes == (row.shapes if listed else [row.shapes]), f"{name} of opset {opset}"
        builder.addOutputTensor(outputs[0])
        onnx.checker.check_model(onnx.load_model_from_string(builder.getModelProto()))


def _added(builder: popart.Builder, opset: int, index: int, value: np.ndarray) -> str:
    if index and value.dtype == np.int64:
        return str(getattr(builder, f"aiOnnxOpset{opset}").constant(value))
    if index:
        return str(builder.addInitializedInputTensor(value))
    return str(builder.addInputTensor(popart.TensorInfo(value)))


def test_ops_without_tensors() -> None:
    builder = popart.Builder()
    assert builder.getTensorShape(builder.aiOnnx.constant(np.zeros((2, 3), np.float32), "name")) == [2, 3]
    zeros = builder.aiGraphcore.init([4], popart.TensorInfo("FLOAT", [4]).data_type(), popart.InitType.Zero, 0)
    assert (builder.getTensorShape(zeros), builder.getTensorDtypeString(zeros)) == ([4], "float32")


def test_every_opset_has_a_method_for_each_op() -> None:
    counts = [len(dir(getattr(popart.Builder(), f"aiOnnxOpset{opset}"))) for opset in range(6, 12)]
    assert counts == [95, 102, 104, 123, 137, 156]


def test_help_shows_the_parameters_of_an_op() -> None:
    builder = popart.Builder()
    assert str(inspect.signature(builder.aiOnnxOpset10.topk)) == "(args, axis=-1, debugContext='') -> list[str]"
    l1loss = builder.aiGraphcore.l1loss
    assert str(inspect.signature(l1loss)) == "(args, lambda_, reduction='Mean', debugContext='') -> str"
    assert (l1loss.__name__, l1loss.__doc__) == (
        "l1loss",
        "Add L1 of ai.graphcore and return the ids of its outputs.",
    )


def test_numbers_of_any_kind_get_the_type_of_the_attribute() -> None:
    """Integers for floating-point attributes, and numpy's numbers: ONNX's checker accepts the model."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 3])
    padded = builder.aiOnnx.pad([x], np.array([0, np.int64(1), 0, 0]), "constant", np.float32(2))
    clipped = builder.aiOnnx.clip([padded], 3, np.int32(-1))
    builder.addOutputTensor(builder.aiOnnx.reducesum([clipped], (np.int64(1),), np.bool_(False)))
    onnx.checker.check_model(onnx.load_model_from_string(builder.getModelProto()))
    assert builder.getFloatNodeAttribute("value", {padded}) == 2.0
    assert builder.getFloatNodeAttribute("max", {clipped}) == 3.0
    loss = builder.aiGraphcore.l1loss([x], 1)
    assert builder.getFloatNodeAttribute("lambda", {loss}) == 1.0


@pytest.mark.parametrize(
    ("name", "values", "text"),
    [
        ("softmax", [1.5], "axis is 1.5; it must be an integer"),
        ("cast", [1.5], "to is 1.5; it must be a text"),
        ("leakyrelu", ["much"], "alpha is 'much'; it must be a number"),
        ("transpose", [1], "perm is 1; it must be a list"),
        ("transpose", [[0, 1.0]], "perm is [0, 1.0]; it must be a list of integers"),
        ("reducesum", ["ab"], "axes is 'ab'; it must be a list"),
        ("reducesum", [["a"]], "axes is ['a']; it must be a list of integers"),
        ("reducesum", [np.array([[0]])], "axes is [[0]]; it must be a list of integers"),
        ("unsqueeze", [2], "axes is 2; it must be a list"),
        ("maxpool", [1, 2.5], "kernel_shape is 2.5; it must be a list of integers"),
    ],
)
def test_values_of_another_type_are_refused(name: str, values: list[Any], text: str) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 3])
    with pytest.raises(TypeError, match=re.escape(text)):
        getattr(builder.aiOnnx, name)([x], *values)
