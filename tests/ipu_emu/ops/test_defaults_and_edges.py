"""Every op and attribute of the Builder's opsets: defaults, element types, axes of both signs, sizes 0 and 1.

Each case is built by the Builder and compared with ONNX's reference evaluator on the same model, or with the function
in its row of the table; the message of a failure lists all differences.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from ipu_emu import popart
from ipu_emu.popart.builder.ai_graphcore import AI_GRAPHCORE
from ipu_emu.popart.builder.ai_onnx import AI_ONNX
from tests.ipu_emu.helpers.sessions import of_another_program
from tests.ipu_emu.ops.cases.edge_tables import (
    Array,
    Case,
    Expected,
    ints,
    optional,
    recurrent,
    some,
    windows,
    without_reference,
)
from tests.ipu_emu.ops.cases.graphcore_edges import graphcore

UNARY = [
    name
    for row in (
        "abs acos acosh asin asinh atan atanh ceil cos",
        "cosh elu erf exp floor hardsigmoid identity leakyrelu log",
        "neg reciprocal relu selu sigmoid sign sin sinh softplus",
        "softsign sqrt tan tanh thresholdedrelu shrink round isnan isinf",
    )
    for name in row.split()
]
BINARY = ["add", "sub", "mul", "div", "pow", "equal", "greater", "less", "max", "min", "mean", "sum"]
REDUCTIONS = ["l1", "l2", "logsum", "logsumexp", "max", "mean", "min", "prod", "sum", "sumsquare"]
SHAPES = ((2, 3), (1,), (), (0, 3))
#: Ops with separate tests, by reason.
ELSEWHERE = {
    "random": ("randomnormal randomnormallike randomuniform randomuniformlike multinomial dropout"),
    "sequences and texts": (
        "concatfromsequence sequenceat sequenceconstruct sequenceempty sequenceerase sequenceinsert "
        "sequencelength splittosequence stringnormalizer tfidfvectorizer"
    ),
    "subgraphs": ("logical_if loop scan"),
    "layers, windows and images, in the operator cases": ("maxroipool maxunpool qlinearconv roialign upsample"),
    "quantised and special ops, in the operator cases": (
        "bitshift dynamicquantizelinear qlinearmatmul reversesequence unique det "
        "meanvariancenormalization nonzero compress "
        "scatter scatterelements scatternd gathernd eyelike constantofshape prelu mod range cumsum"
    ),
}

#: Ops of aiGraphcore with separate cases or tests.
GRAPHCORE_ELSEWHERE = (
    "abort batchnormalization call copyvarupdate ctcbeamsearchdecoder ctcloss groupedscatterreduce init "
    "lstm multiconv normalize_image packedDataBlock printtensor replicatedallreduce "
    "replicatedreducescatter sequenceslice shapeddropout splinebasis splineweighting"
)


def elementwise() -> Iterator[Case]:
    for name, shape in itertools.product(UNARY, SHAPES):
        if name == "softsign" and shape == ():  # the reference gives a Python number
            continue
        x = np.asarray(some(shape) + np.float32(1.0 if name == "acosh" else 0.0))
        yield name, [x], {}, 11
    for name, (a, b) in itertools.product(BINARY, (((2, 3), (3,)), ((2, 3), ()), ((1,), (1,)), ((0, 3), (1, 3)))):
        yield name, [some(a), some(b, seed=2)], {}, 8
    for name in ("add", "sub", "mul", "max", "min"):
        yield name, [some((3,), "int32"), some((3,), "int32", 2)], {}, 11
    for name in ("logical_and", "logical_or", "logical_xor"):
        yield name, [np.array([True, False]), np.array([[True], [False]])], {}, 10
    yield "logical_not", [np.array([True, False])], {}, 10
    for options in ({}, {"max": 0.5}, {"min": 0.3}, {"max": 0.7, "min": 0.4}):
        yield "clip", [some((2, 3))], options, 10
    for name, options in (
        ("elu", {"alpha": 0.5}),
        ("leakyrelu", {"alpha": 0.2}),
        ("selu", {"alpha": 1.5, "gamma": 1.1}),
        ("hardsigmoid", {"alpha": 0.3, "beta": 0.1}),
        ("shrink", {"bias": 0.1, "lambd": 0.4}),
        ("thresholdedrelu", {"alpha": 0.4}),
    ):
        yield name, [some((2, 3)) - np.float32(0.5)], options, 10
    for to in ("FLOAT", "FLOAT16", "INT32", "BOOL", "UINT8"):
        yield "cast", [some((2, 3)) * np.float32(5)], {"to": to}, 10
    yield "where", [np.array([True, False, True]), some((2, 3)), some((1, 3), seed=2)], {}, 9


def along_axes() -> Iterator[Case]:
    for name, axes, keep in itertools.product(REDUCTIONS, (None, [0], [-1], [0, 2], [-2, 1 - 3]), (0, 1)):
        if axes != [-2, -2]:
            yield f"reduce{name}", [some((2, 3, 4))], {"axes": axes, "keepdims": keep}, 11
    for name, axis in itertools.product(("argmax", "argmin"), (0, 1, -1)):
        yield name, [some((2, 3))], {"axis": axis}, 11
        yield name, [some((2, 3))], {"axis": axis, "keepdims": 0}, 11
    # The reference has only the later meaning of axis; for the last axis both are the same.
    for name in ("softmax", "logsoftmax", "hardmax"):
        yield name, [some((2, 3, 4))], {"axis": 2}, 10
        yield name, [some((2, 3))], {}, 10
    yield "flatten", [some((2, 3, 4))], {}, 10
    for axis in (0, 1, 2, -1):
        yield "flatten", [some((2, 3, 4))], {"axis": axis}, 11
        yield "concat", [some((2, 3, 4)), some((2, 3, 4), seed=2)], {"axis": axis}, 11
        yield "gather", [some((2, 3, 4)), ints(0, -1, 1)], {"axis": axis}, 11
        yield "split", [some((2, 2, 4))], {"num_outputs": 2, "axis": axis}, 11
        yield "cumsum", [some((2, 3, 4)), np.array(axis, np.int32)], {}, 11
        yield "cumsum", [some((2, 3, 4)), np.array(axis, np.int32)], {"exclusive": 1, "reverse": 1}, 11
        yield "gatherelements", [some((3, 3, 4)), np.zeros((3, 3, 4), np.int64)], {"axis": axis}, 11
        yield "lpnormalization", [some((2, 3, 4))], {"axis": axis}, 10
        yield "onehot", [ints(0, 2), np.array(3, np.int64), np.array([0, 5], np.float32)], {"axis": min(axis, 1)}, 11
        yield "topk", [some((2, 3, 4)), ints(2)], {"axis": axis}, 11
        yield "topk", [some((2, 3, 4)), ints(2)], {"axis": axis, "largest": 0}, 11
        yield "unsqueeze", [some((2, 3, 4))], {"axes": [axis]}, 11
    yield "lpnormalization", [some((2, 3, 4))], {"axis": 1, "p": 1}, 10
    yield "split", [some((4, 2))], {"num_outputs": 2, "split": [1, 3]}, 10
    yield "squeeze", [some((1, 3, 1))], {}, 11
    yield "squeeze", [some((1, 3, 1))], {"axes": [0, -1]}, 11


def moved() -> Iterator[Case]:
    yield "transpose", [some((2, 3, 4))], {}, 10
    yield "transpose", [some((2, 3, 4))], {"perm": [1, 2, 0]}, 10
    yield "transpose", [some((0, 3))], {}, 10
    for target in ([3, 2], [-1], [0, -1], [1, 6, 1]):
        yield "reshape", [some((2, 3)), ints(*target)], {}, 10
    yield "expand", [some((2, 1)), ints(3, 2, 4)], {}, 10
    yield "expand", [some((2, 3)), ints(1)], {}, 10
    yield "tile", [some((2, 3)), ints(2, 1)], {}, 10
    yield "tile", [some((2, 3)), ints(0, 2)], {}, 10
    for mode in ("constant", "edge", "reflect"):
        yield "pad", [some((3, 3)), ints(1, 0, 1, 2)], {"mode": mode}, 11
    yield "pad", [some((3, 3))], {"pads": [1, 0, 0, 1], "value": 2.0}, 10
    yield "pad", [some((3, 3)), ints(1, 0, 1, 2), np.array(3.0, np.float32)], {}, 11
    for starts, ends, axes, steps in (
        ([0], [2], [0], [1]),
        ([-2], [100], [-1], [1]),
        ([3], [-5], [1], [-1]),
        ([1], [1], [0], [1]),
        ([0, 0], [3, 4], [1, 0], [2, 3]),
    ):
        yield "slice", [some((3, 4)), ints(*starts), ints(*ends), ints(*axes), ints(*steps)], {}, 10
    yield "slice", [some((3, 4)), ints(1), ints(2)], {}, 10
    yield "slice", [some((3, 4))], {"ends": [2, -1], "starts": [0, 1]}, 9
    yield "slice", [some((3, 4))], {"ends": [3], "starts": [1], "axes": [1]}, 9
    yield "depthtospace", [some((1, 8, 2, 2))], {"blocksize": 2}, 11
    yield "depthtospace", [some((1, 8, 2, 2))], {"blocksize": 2, "mode": "CRD"}, 11
    yield "spacetodepth", [some((1, 2, 4, 4))], {"blocksize": 2}, 11
    yield "shape", [some((2, 0, 3))], {}, 10
    yield "size", [some((2, 3))], {}, 10


def products() -> Iterator[Case]:
    vectors = (((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)))
    for a, b in (*vectors, ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((5, 1, 2, 3), (4, 3, 2)), ((0, 3), (3, 2))):
        yield "matmul", [some(a), some(b, seed=2)], {}, 10
    for left, right in itertools.product((0, 1), (0, 1)):
        shapes = (3, 2) if left else (2, 3), (4, 3) if right else (3, 4)
        operands = [some(shapes[0]), some(shapes[1], seed=2), some((4,), seed=3)]
        yield "gemm", operands, {"transA": left, "transB": right, "alpha": 0.5, "beta": 2.0}, 10
    yield "gemm", [some((2, 3)), some((3, 4), seed=2)], {}, 11
    yield "gemm", [some((2, 3)), some((3, 4), seed=2), some(())], {}, 10


FAMILIES = {"elementwise": elementwise, "along axes": along_axes, "moved": moved, "products": products}
FAMILIES |= {"windows": windows, "optional inputs": optional}
#: Families with a function for the expected outputs of each case.
KNOWN_FAMILIES = {"without reference": without_reference, "recurrent": recurrent, "graphcore": graphcore}
#: Input positions that must be constant, by op.
KNOWN = {"cumsum": (1,), "expand": (1,), "onehot": (1,), "pad": (1, 2), "reshape": (1,), "tile": (1,), "topk": (1,)}
KNOWN |= {"slice": (1, 2, 3, 4), "clip": (1, 2), "resize": (1, 2, 3), "nonmaxsuppression": (0, 1, 2, 3, 4)}


def difference(case: Case, expected: Expected | None = None, opset_name: str = "aiOnnx") -> str:
    """The difference between the session and ``expected``, by default the reference; '' if they are equal."""
    name, arrays, options, opset = case
    builder = popart.Builder(opsets={"ai.onnx": opset})
    ids, fed = [], {}
    for index, array in enumerate(arrays):
        if array is None:
            ids.append("")
        elif index in KNOWN.get(name, ()):
            ids.append(builder.aiOnnx.constant(array))
        else:
            ids.append(builder.addInputTensor(popart.TensorInfo(array)))
            fed[ids[-1]] = array
    try:
        names = getattr(getattr(builder, opset_name), name)(ids, **options)
        outputs = [names] if isinstance(names, str) else list(names)
        for id in outputs:
            builder.addOutputTensor(id)
        proto = builder.getModelProto()
        results = run(proto, outputs, fed)
    except popart.popart_exception as error:
        return f"refused: {error}"
    wants = expected(*arrays, **options) if expected else ReferenceEvaluator(proto).run(outputs, fed)
    for id, wanted in zip(outputs, map(np.asarray, wants), strict=True):
        if results[id].shape != wanted.shape:
            return f"shape {results[id].shape}, expected {wanted.shape}"
        if results[id].dtype != wanted.dtype and (results[id].dtype, wanted.dtype) != (np.int32, np.int64):
            return f"type {results[id].dtype}, expected {wanted.dtype}"
        if not np.allclose(results[id], wanted, rtol=1e-5, atol=1e-6, equal_nan=True):
            return f"{results[id].reshape(-1)[:4]}, expected {wanted.reshape(-1)[:4]}"
    return ""


def run(proto: bytes, outputs: Sequence[str], fed: Mapping[str, Array]) -> dict[str, Array]:
    device = popart.DeviceManager().createCpuDevice()
    session = popart.InferenceSession(of_another_program(proto), popart.DataFlow(1, list(outputs)), device)
    session.prepareDevice()
    anchors: dict[str, Array] = session.initAnchorArrays()
    session.run(popart.PyStepIO(dict(fed), anchors))
    return anchors


def described(case: Case) -> str:
    name, arrays, options, opset = case
    inputs = ", ".join("none" if a is None else f"{a.dtype}{list(a.shape)}" for a in arrays)
    return f"{name}({inputs}; {options}) in opset {opset}"


def cases_of(family: str) -> Iterator[tuple[Case, Expected | None]]:
    if family in KNOWN_FAMILIES:
        yield from KNOWN_FAMILIES[family]()
    else:
        yield from ((case, None) for case in FAMILIES[family]())


@pytest.mark.parametrize("family", [*FAMILIES, *KNOWN_FAMILIES])
def test_defaults_types_axes_and_sizes(family: str) -> None:
    opset_name = "aiGraphcore" if family == "graphcore" else "aiOnnx"
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        results = [(case, difference(case, expected, opset_name)) for case, expected in cases_of(family)]
    differing = [f"{described(case)}: {text}" for case, text in results if text]
    assert not differing, "\n" + "\n".join(differing)


def test_every_op_is_in_the_table_or_tested_elsewhere() -> None:
    families = [*FAMILIES, "without reference", "recurrent"]
    tested = {case[0] for family in families for case, _ in cases_of(family)}
    elsewhere = {name for names in ELSEWHERE.values() for name in names.split()}
    assert set(AI_ONNX) - tested - elsewhere == {"constant"}
    assert set(AI_GRAPHCORE) - {case[0] for case, _ in cases_of("graphcore")} == set(GRAPHCORE_ELSEWHERE.split())


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_softmax_of_old_opsets_flattens_from_its_axis(dtype: str) -> None:
    x = some((2, 3, 4), dtype)
    builder = popart.Builder()
    id = builder.addInputTensor(popart.TensorInfo(x))
    ids = [builder.aiOnnx.softmax([id], axis) for axis in (0, 1, 2, -1)]
    outputs = run(builder.getModelProto(), ids, {id: x})
    for y, rows in zip(ids, (1, 2, 6, 6), strict=True):
        e = np.exp(x.astype(np.float64).reshape(rows, -1))
        expected = (e / e.sum(1, keepdims=True)).reshape(x.shape)
        np.testing.assert_allclose(outputs[y], expected, rtol=1e-5 if dtype == "float32" else 2e-3)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
@pytest.mark.parametrize("pads", [(-1, 0, 1, -2), (-1, -1, -1, -1), (2, -2, -3, 1), (0, -4, 0, 0)])
def test_negative_pads_crop(mode: Any, pads: tuple[int, int, int, int]) -> None:
    """A negative number removes elements, before the others are added."""
    x = some((4, 4))
    builder = popart.Builder(opsets={"ai.onnx": 11})
    id = builder.addInputTensor(popart.TensorInfo(x))
    y = builder.aiOnnx.pad([id, builder.aiOnnx.constant(ints(*pads))], mode)
    before, after = np.array(pads[:2]), np.array(pads[2:])
    window = tuple(slice(max(-b, 0), 4 - max(-a, 0)) for b, a in zip(before, after, strict=True))
    if mode != "constant" and 0 in x[window].shape:
        return
    added = [(max(b, 0), max(a, 0)) for b, a in zip(before, after, strict=True)]
    if mode == "reflect" and any(b >= n or a >= n for (b, a), n in zip(added, x[window].shape, strict=True)):
        return
    np.testing.assert_array_equal(run(builder.getModelProto(), [y], {id: x})[y], np.pad(x[window], added, mode=mode))
