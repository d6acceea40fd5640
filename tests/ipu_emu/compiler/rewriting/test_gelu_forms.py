"""GELU forms: each spelling becomes one op with the values and the gradient of the elementary ops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from ipu_emu.compiler.rewriting.recognised_ops import with_gelu
from ipu_emu.onnx.read import read
from tests.ipu_emu.helpers.sessions import train

#: Writes a GELU of a tensor with the ops of a builder.
Form = Callable[[Any, Callable[[float], str], str], str]


def erf_divided(o: Any, c: Callable[[float], str], x: str) -> str:
    inner = o.add([o.erf([o.div([x, c(math.sqrt(2))])]), c(1)])
    return str(o.mul([o.mul([x, inner]), c(0.5)]))


def erf_multiplied(o: Any, c: Callable[[float], str], x: str) -> str:
    half = o.mul([c(0.5), x])
    return str(o.add([half, o.mul([o.erf([o.mul([c(math.sqrt(0.5)), x])]), half])]))


def tanh_power(o: Any, c: Callable[[float], str], x: str) -> str:
    cube = o.mul([o.pow([x, c(3)]), c(0.044715)])
    inner = o.tanh([o.mul([o.add([x, cube]), c(math.sqrt(2 / math.pi))])])
    return str(o.mul([o.mul([x, c(0.5)]), o.add([inner, c(1)])]))


def tanh_products(o: Any, c: Callable[[float], str], x: str) -> str:
    square = o.add([o.mul([o.mul([x, x]), c(0.044715)]), c(1)])
    inner = o.tanh([o.mul([o.mul([x, c(0.7978845608)]), square])])
    return str(o.mul([c(0.5), o.mul([x, o.add([c(1), inner])])]))


def other_constant(o: Any, c: Callable[[float], str], x: str) -> str:
    inner = o.add([o.erf([o.div([x, c(1.5)])]), c(1)])
    return str(o.mul([o.mul([x, inner]), c(0.5)]))


def two_tensors(o: Any, c: Callable[[float], str], x: str) -> str:
    inner = o.add([o.erf([o.div([x, c(math.sqrt(2))])]), c(1)])
    return str(o.mul([o.mul([o.neg([x]), inner]), c(-0.25)]))


def written(form: Form) -> tuple[popart.Builder, str, str]:
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [4, 100]))
    weights = builder.addInitializedInputTensor(np.linspace(0.5, 2, 100, dtype=np.float32))
    o = builder.aiOnnx
    y = form(o, lambda value: str(o.constant(np.array(value, np.float32))), o.mul([x, weights]))
    return builder, y, str(o.reducesum([o.mul([y, y])]))


def types_of(form: Form) -> list[str]:
    builder, y, loss = written(form)
    builder.addOutputTensor(loss)
    graph = with_gelu(read(builder.getModelProto()).graph)
    return [op.type for op in graph.ops if y in op.outputs]


@pytest.mark.parametrize(
    ("form", "type"),
    [(erf_divided, "GeluErf"), (erf_multiplied, "GeluErf"), (tanh_power, "Gelu"), (tanh_products, "Gelu")],
)
def test_each_spelling_is_recognised(form: Form, type: str) -> None:
    assert types_of(form) == [type]


@pytest.mark.parametrize(("form", "type"), [(other_constant, "Mul"), (two_tensors, "Mul")])
def test_other_functions_are_unchanged(form: Form, type: str) -> None:
    assert types_of(form) == [type]


@pytest.mark.parametrize("form", [erf_divided, erf_multiplied, tanh_power, tanh_products])
def test_value_and_gradient_are_those_of_the_definition(form: Form) -> None:
    builder, y, loss = written(form)
    x_id = builder.getInputTensorIds()[0]
    gradient = f"Gradient___{x_id}"
    flow = popart.DataFlow(1, [y, gradient])
    session = train(builder, flow, loss, popart.ConstSGD(0.5))
    anchors = session.initAnchorArrays()
    x = np.linspace(-6, 6, 400, dtype=np.float32).reshape(4, 100)
    session.run(popart.PyStepIO({x_id: x}, anchors))
    scale = np.linspace(0.5, 2, 100, dtype=np.float32).astype(np.float64)
    z = x * scale

    def gelu(z: Any) -> Any:
        if "erf" in form.__name__:
            return 0.5 * z * (1 + np.vectorize(math.erf)(z / math.sqrt(2)))
        return 0.5 * z * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))

    slope = (gelu(z + 1e-6) - gelu(z - 1e-6)) / 2e-6
    np.testing.assert_allclose(anchors[y], gelu(z), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(anchors[gradient], 2 * gelu(z) * slope * scale, rtol=1e-5, atol=1e-5)
