"""Exported modules: models of PyTorch's newer exporter train as in PyTorch, or cause a warning."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from ipu_emu import popart
from ipu_emu.graph.graph import SIGNATURE
from tests.ipu_emu.helpers.sessions import options

RATE, STEPS, WIDTH = 0.1, 5, 3


def session(model: Any, trained: list[str] | None = None) -> popart.TrainingSession:
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 1})
    flow = popart.DataFlow(1, ["loss"])
    chosen = options(trainedWeights=trained)
    training = popart.TrainingSession(model, flow, "loss", popart.ConstSGD(RATE), device, userOptions=chosen)
    training.prepareDevice()
    training.weightsFromHost()
    return training


# Models as the exporter writes them


def model(nodes: list[Any], weights: dict[str, Any], signature: str) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, WIDTH])
    loss = helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])
    data = [numpy_helper.from_array(np.float32(value), id) for id, value in weights.items()]
    total = [helper.make_node("ReduceSum", ["y"], ["loss"], keepdims=0)]
    graph = helper.make_graph([*nodes, *total], "main_graph", [x], [loss], data)
    graph.metadata_props.append(onnx.StringStringEntryProto(key=SIGNATURE, value=signature))
    return helper.make_model(graph, producer_name="pytorch", opset_imports=[helper.make_opsetid("", 17)])


def listing(parameters: list[str], buffers: list[str] = (), constants: list[str] = ()) -> str:  # type: ignore[assignment]
    kinds = (("PARAMETER", parameters), ("BUFFER", buffers), ("CONSTANT_TENSOR", constants))
    lines = [f"p_{id}: {kind} target='{id}'" for kind, ids in kinds for id in ids]
    return "\n# inputs\n" + "\n".join(lines) + "\nx: USER_INPUT\n\n# outputs\nb: BUFFER target='no'\n"


SQUARE = np.arange(9).reshape(3, 3) / 10
SCALED = [helper.make_node("Mul", ["x", "w"], ["s"]), helper.make_node("Mul", ["s", "c"], ["y"])]


@pytest.mark.parametrize(("trained", "changed"), [(None, {"w"}), (["c"], {"c"}), (["w", "c"], {"w", "c"})])
@pytest.mark.filterwarnings("error")
def test_the_parameters_of_the_module_are_trained_unless_others_are_listed(
    trained: list[str] | None, changed: set[str]
) -> None:
    training = session(model(SCALED, {"w": [1, 2, 3], "c": [2, 2, 2]}, listing(["w"], ["c"])), trained)
    training.run(popart.PyStepIO({"x": np.ones((2, WIDTH), np.float32)}, training.initAnchorArrays()))
    training.weightsToHost()
    weights = {id: np.empty(WIDTH, np.float32) for id in ("w", "c")}
    training.readWeights(popart.PyWeightsIO(weights))
    before = {"w": [1, 2, 3], "c": [2, 2, 2]}
    assert {id for id, value in weights.items() if value.tolist() != before[id]} == changed


@pytest.mark.parametrize(
    "mask", [np.tril(np.ones((1, 1, WIDTH, WIDTH))), np.where(np.eye(WIDTH), 0, -1e4)], ids=["by shape", "by values"]
)
def test_initializers_that_look_like_masks_are_reported(mask: Any) -> None:
    nodes = [helper.make_node("MatMul", ["x", "onnx::m_7"], ["s"]), helper.make_node("Mul", ["s", "w"], ["y"])]
    said = r"initializers that look like buffers \(by name, shape or values\) are trained: onnx::m_7\n"
    with pytest.warns(UserWarning, match=said):
        session(model(nodes, {"onnx::m_7": mask, "w": [1, 2, 3]}, ""))


TWO = [
    helper.make_node("Gemm", ["x", "a.weight", "b.bias"], ["h"]),
    helper.make_node("Gemm", ["h", "b.weight", "b.bias"], ["y"]),
]
LAYERS = {"a.weight": SQUARE, "b.weight": SQUARE}
NAMES = ["a.weight", "a.bias", "b.weight", "b.bias"]
NO_BIAS = [helper.make_node("MatMul", ["x", "a.weight"], ["h"]), helper.make_node("MatMul", ["h", "b.weight"], ["y"])]
NORM = ["a.running_mean", "a.running_var"]


@pytest.mark.parametrize(
    ("nodes", "weights", "signature", "text"),
    [(TWO, LAYERS | {"b.bias": np.zeros(3)}, listing(NAMES), r"lacks the parameters a\.bias; equal ones were merged"),
     (NO_BIAS, LAYERS, listing(NAMES), r"biases that were 0 were removed: a\.bias, b\.bias"),
     (SCALED, {"w": [1, 2, 3], "c": [2, 2, 2]}, listing(["w", "gone"]), "computed from them are not trained: c"),
     (NO_BIAS, LAYERS, listing(["a.weight", "b.weight"], NORM), "folded batch normalisations into other layers: a"),
    ],
)  # fmt: skip
def test_changes_of_the_exporter_are_reported(
    nodes: list[Any], weights: dict[str, Any], signature: str, text: str
) -> None:
    with pytest.warns(UserWarning, match=text) as caught:
        session(model(nodes, weights, signature))
    assert "optimize=False" in str(caught[0].message)


@pytest.mark.parametrize(
    ("weights", "signature"),
    [(LAYERS | {"b.bias": np.zeros(3)}, listing(["a.weight", "b.weight", "b.bias"])),  # one bias for both
     (LAYERS | {"b.bias": np.arange(3)}, listing(["a.weight", "b.weight", "b.bias", "unused", "tied.weight"]))],
)  # fmt: skip
@pytest.mark.filterwarnings("error")
def test_shared_tied_and_unused_parameters_are_in_order(weights: dict[str, Any], signature: str) -> None:
    session(model(TWO, weights, signature))


# PyTorch's own exporter


@pytest.fixture(scope="module")
def torch() -> Any:
    pytest.importorskip(
        "onnxscript", reason="onnxscript is not installed, which torch.onnx.export(dynamo=True) needs"
    )
    return pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")


def network(torch: Any, norm: str) -> Any:
    nn = torch.nn
    norms = {"none": nn.Identity, "batch": lambda: nn.BatchNorm2d(4), "group": lambda: nn.GroupNorm(2, 4)}

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Conv2d(3, 4, 3), norms[norm](), nn.SiLU(), nn.Flatten())
            self.wide, self.out = nn.Linear(64, 64), nn.Linear(64, 3)
            self.register_buffer("scale", torch.full((64,), 0.5))
            nn.init.zeros_(self.wide.bias)
            nn.init.zeros_(self.out.bias)

        def forward(self, x: Any, y: Any) -> Any:
            hidden = torch.tanh(self.wide(self.layers(x))) * self.scale
            return nn.functional.cross_entropy(self.out(hidden), y)

    torch.manual_seed(0)
    return Net(), (torch.randn(4, 3, 6, 6), torch.randint(0, 3, (4,)))


def exported(torch: Any, net: Any, data: Any, **how: Any) -> Any:
    names: Any = {"input_names": ["x", "y"], "output_names": ["loss"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            return torch.onnx.export(net, data, dynamo=True, verbose=False, **names, **how)
        finally:
            logging.disable(logging.NOTSET)


@pytest.mark.torch
@pytest.mark.parametrize("norm", ["none", "batch", "group"])
@pytest.mark.filterwarnings("error")
def test_a_program_of_the_exporter_trains_as_in_pytorch(torch: Any, norm: str) -> None:
    net, data = network(torch, norm)
    program = exported(torch, net, data, optimize=False)
    if norm == "batch":
        transformer = popart.GraphTransformer(program)
        transformer.prepareNodesForTraining()
        program = transformer.getModelProto()
    training = session(program)
    anchors, losses, expected = training.initAnchorArrays(), [], []
    optimiser = torch.optim.SGD(net.parameters(), lr=RATE)
    for _ in range(STEPS):
        training.run(popart.PyStepIO({"x": data[0].numpy(), "y": data[1].numpy().astype(np.int32)}, anchors))
        losses.append(float(anchors["loss"]))
        loss = net(*data)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        expected.append(loss.item())
    np.testing.assert_allclose(losses, expected, rtol=1e-5)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("norm", "text"),
    [("none", "biases that were 0"), ("batch", "folded batch norm"), ("group", "computed from them")],
)
def test_an_optimised_program_is_reported(torch: Any, norm: str, text: str) -> None:
    net, data = network(torch, norm)
    with pytest.warns(UserWarning, match=text):
        session(exported(torch, net, data))
