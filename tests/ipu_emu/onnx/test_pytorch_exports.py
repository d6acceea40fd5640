"""Models that PyTorch exports to every opset that it supports, compared with PyTorch."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import onnx
import pytest

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import train
from tests.ipu_emu.ops.cases.onnx_cases import run

pytestmark = pytest.mark.torch


def exported(torch: Any, net: Any, x: Any, opset: int, **more: Any) -> onnx.ModelProto:
    """By the TorchScript exporter, the only one that writes old opsets."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, (x,), file, opset_version=opset, dynamo=False, **more)
    return onnx.load_model_from_string(file.getvalue())


def inference_net(torch: Any, opset: int) -> Any:
    """Ops whose attributes became inputs, or whose meaning changed: clip, pad, resize, squeeze, sums, dropout."""
    functional = torch.nn.functional

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution, self.norm = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8)
            self.groups, self.dropout = torch.nn.GroupNorm(2, 8), torch.nn.Dropout(0.3)
            self.last, self.layer = torch.nn.Linear(200, 10), torch.nn.LayerNorm(10)

        def forward(self, x: Any) -> Any:
            x = functional.pad(self.norm(self.convolution(x)).clamp(-1, 2), (1, 2, 0, 1))
            x = functional.interpolate(x, size=(12, 16), mode="nearest")
            if opset >= 11:
                x = functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
            x = self.groups(x).mean((2, 3), keepdim=True).squeeze(-1).unsqueeze(2) * torch.ones(1, 1, 5, 5)
            x = functional.max_pool2d(torch.cat([x, x], 2), 2, 1, 1)[:, :, :5, :5]
            first, second = x.split([3, 5], 1)
            x = self.last(self.dropout(torch.cat([first * 2, second], 1).flatten(1)))
            x = self.layer(x) + x.sum(1, keepdim=True) + x.mean(1, keepdim=True)
            largest, _ = x.topk(4, 1)
            x = functional.log_softmax(x, 1)
            return torch.where(x > -1, x, x * largest.max())

    torch.manual_seed(0)
    return Net().eval()


@pytest.mark.parametrize("opset", [9, 10, 11, 12, 13, 16, 18, 20])
def test_inference(opset: int) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")
    net, x = inference_net(torch, opset), torch.randn(2, 3, 6, 6)
    model = exported(torch, net, x, opset)
    assert model.opset_import[0].version == opset
    results = run(model, {model.graph.input[0].name: x.numpy()})
    expected = net(x).detach().numpy()
    np.testing.assert_allclose(results[model.graph.output[0].name], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opset", [9, 12, 14, 18])
def test_training(opset: int) -> None:
    """A model in training mode: batch statistics (an attribute from 14 on), and a dropout that drops nothing."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Dropout(0.0))
    net = torch.nn.Sequential(net, torch.nn.Flatten(), torch.nn.Linear(64, 5)).train()
    x = torch.randn(4, 3, 6, 6)
    model = exported(torch, net, x, opset, training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)
    builder = popart.Builder(model.SerializeToString())
    loss = builder.aiGraphcore.identityloss([model.graph.output[0].name], popart.ReductionType.Mean)
    session = train(builder, popart.DataFlow(1, [loss]), loss, popart.ConstSGD(0.5))
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({model.graph.input[0].name: x.numpy()}, anchors))
    expected = net(x).mean()
    expected.backward()
    np.testing.assert_allclose(anchors[loss], expected.item(), rtol=1e-5)
    weights = {name: np.zeros(parameter.shape, np.float32) for name, parameter in net.named_parameters()}
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO(weights))
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            np.testing.assert_allclose(weights[name], parameter - 0.5 * parameter.grad, rtol=1e-4, atol=1e-6)
