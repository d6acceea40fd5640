"""Misspelt names of ops, attributes, types, reductions and other enumerations: the error suggests the right one."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import pytest
from onnx import TensorProto, helper

from ipu_emu import popart


def on(op: Callable[[popart.Builder, list[str]], object]) -> Callable[[], object]:
    """``op`` on matrices of a new builder."""

    def run() -> object:
        builder = popart.Builder()
        return op(builder, [builder.addInputTensor("FLOAT", [2, 2]) for _ in range(2)])

    return run


def imported(type: str, domain: str, **attributes: object) -> Callable[[], object]:
    """A session of a model file that holds one node."""

    def run() -> object:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
        graph = helper.make_graph([helper.make_node(type, ["x"], ["y"], domain=domain, **attributes)], "g", [x], [y])
        opsets = [helper.make_opsetid("", 11), helper.make_opsetid("ai.graphcore", 1)]
        proto: onnx.ModelProto = helper.make_model(graph, opset_imports=opsets)
        device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 1})
        return popart.InferenceSession(proto.SerializeToString(), popart.DataFlow(1, ["y"]), device)

    return run


@pytest.mark.parametrize(
    ("use", "meant"),
    [
        (on(lambda builder, x: builder.aiOnnx.matmull(x)), "matmul"),
        (on(lambda builder, x: builder.aiOnnx.Softmax(x)), "softmax"),
        (on(lambda builder, x: builder.aiGraphcore.gellu(x)), "gelu"),
        (on(lambda builder, x: builder.aiOnnx.softmax(x[:1], axes=1)), "axis"),
        (imported("Reluu", ""), "Relu"),
        (imported("Gellu", "ai.graphcore"), "Gelu"),
        (imported("L1", "ai.graphcore", reduction="Meen", **{"lambda": 0.1}), "Mean"),
        (lambda: popart.TensorInfo("FLAOT16", [2]), "FLOAT16"),
        (lambda: popart.ReductionType.Summ, "Sum"),  # type: ignore[attr-defined]
        (lambda: popart.ExecutionPhaseSchedule.interleaving, "Interleaving"),  # type: ignore[attr-defined]
        (lambda: popart.SGD({"defaultLearningRat": (0.1, False)}), "defaultLearningRate"),
        (lambda: popart.DeviceManager().createIpuModelDevice({"numIPU": 1}), "numIPUs"),
    ],
)
def test_the_name_that_was_meant(use: Callable[[], object], meant: str) -> None:
    with pytest.raises((popart.popart_exception, AttributeError, TypeError), match=rf"; did you mean '{meant}'\?"):
        use()
