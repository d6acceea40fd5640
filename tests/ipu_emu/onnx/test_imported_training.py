"""Imported models: exported PyTorch models train as in PyTorch if the remedy is applied, else cause a warning."""

from __future__ import annotations

import io
import math
import warnings
from typing import Any

import numpy as np
import onnx
import pytest

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import options

pytestmark = pytest.mark.torch

RATE, STEPS = 0.25, 6


@pytest.fixture(scope="module")
def torch() -> Any:
    module = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")
    module.manual_seed(0)
    return module


def block(torch: Any, rotary: bool) -> Any:
    """A layer of a GPT: a causal mask and its value are buffers, as in GPT-2, or rotary frequencies are."""
    nn, width, heads, length = torch.nn, 16, 2, 8

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            for layer in (self.attention, self.output, self.wide, self.narrow):
                nn.init.zeros_(layer.bias)
            half = width // heads // 2
            if rotary:
                self.register_buffer("inv_freq", 10000.0 ** (-torch.arange(half).float() / half))
            self.register_buffer("bias", torch.tril(torch.ones(length, length)).view(1, 1, length, length))
            self.register_buffer("masked_bias", torch.tensor(-1e4))

        def turned(self, x: Any) -> Any:
            if not rotary:
                return x
            angles = torch.arange(length).float()[:, None] * self.inv_freq[None, :]
            a, b = x.chunk(2, -1)
            cos, sin = angles.cos(), angles.sin()
            return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)

        def forward(self, x: Any) -> Any:
            samples = x.shape[0]
            parts = self.attention(self.first(x)).chunk(3, -1)
            q, k, v = (part.view(samples, length, heads, -1).transpose(1, 2) for part in parts)
            scores = self.turned(q) @ self.turned(k).transpose(-1, -2) / math.sqrt(width // heads)
            weights = torch.where(self.bias > 0, scores, self.masked_bias).softmax(-1)
            x = x + self.output((weights @ v).transpose(1, 2).reshape(samples, length, width))
            return x + self.narrow(nn.functional.gelu(self.wide(self.second(x))))

    return Block()


def language_model(torch: Any, rotary: bool = False) -> tuple[Any, tuple[Any, Any]]:
    nn = torch.nn

    class Gpt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.positions = nn.Embedding(11, 16), nn.Embedding(8, 16)
            self.blocks = nn.Sequential(block(torch, rotary), block(torch, rotary))
            self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 11, bias=False)

        def forward(self, x: Any, y: Any) -> Any:
            hidden = self.norm(self.blocks(self.tokens(x) + self.positions(torch.arange(8))))
            return nn.functional.cross_entropy(self.head(hidden).view(-1, 11), y)

    torch.manual_seed(1)
    return Gpt(), (torch.randint(0, 11, (2, 8)), torch.randint(0, 11, (16,)))


def image_model(torch: Any) -> tuple[Any, tuple[Any, Any]]:
    nn = torch.nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.last = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Linear(144, 3)

        def forward(self, x: Any, y: Any) -> Any:
            return nn.functional.cross_entropy(self.last(self.norm(self.conv(x)).relu().flatten(1)), y)

    torch.manual_seed(1)
    return Net(), (torch.randn(4, 1, 8, 8), torch.randint(0, 3, (4,)))


def exported(torch: Any, net: Any, data: tuple[Any, Any], **how: Any) -> bytes:
    if how.pop("training", True):
        how |= {"training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False}
    else:
        net = net.eval()
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names: Any = {"input_names": ["x", "y"], "output_names": ["loss"]}
        torch.onnx.export(net, data, file, dynamo=False, opset_version=17, **names, **how)
    return file.getvalue()


def session(model: bytes, trained: list[str] | None = None) -> popart.TrainingSession:
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 1})
    flow = popart.DataFlow(1, ["loss"])
    training = popart.TrainingSession(
        model, flow, "loss", popart.ConstSGD(RATE), device, userOptions=options(trainedWeights=trained)
    )
    training.prepareDevice()
    training.weightsFromHost()
    return training


def losses(training: popart.TrainingSession, data: tuple[Any, Any]) -> list[float]:
    values = []
    anchors = training.initAnchorArrays()
    for _ in range(STEPS):
        step = {"x": data[0].numpy(), "y": data[1].numpy()}
        if step["x"].dtype == np.int64:
            step["x"] = step["x"].astype(np.int32)
        training.run(popart.PyStepIO(step | {"y": step["y"].astype(np.int32)}, anchors))
        values.append(float(anchors["loss"]))
    return values


def weight(training: popart.TrainingSession, id: str) -> Any:
    array = np.empty(training.getInfo(id).shape(), np.float32)
    training.weightsToHost()
    training.readWeights(popart.PyWeightsIO({id: array}))
    return array


def losses_of_torch(torch: Any, net: Any, data: tuple[Any, Any]) -> list[float]:
    optimiser = torch.optim.SGD([parameter for parameter in net.parameters() if parameter.requires_grad], lr=RATE)
    net.train()
    values = []
    for _ in range(STEPS):
        loss = net(*data)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        values.append(loss.item())
    return values


def parameters(net: Any) -> list[str]:
    return [name for name, parameter in net.named_parameters() if parameter.requires_grad]


@pytest.mark.parametrize("rotary", [False, True])
def test_a_language_model_trains_as_in_pytorch_if_its_buffers_are_not_trained(torch: Any, rotary: bool) -> None:
    net, data = language_model(torch, rotary)
    model = exported(torch, net, data)
    with pytest.warns(UserWarning, match="may not be trained as intended") as caught:
        unlisted = session(model)
    text = str(caught[0].message)
    assert len(caught) == 1
    assert "scalars are trained: blocks.0.masked_bias, blocks.1.masked_bias" in text
    assert ("blocks.0.inv_freq, blocks.1.inv_freq" in text) is rotary
    assert "trainedWeights" in text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        listed = session(model, parameters(net))
    np.testing.assert_allclose(losses(listed, data), losses_of_torch(torch, net, data), rtol=2e-4)
    losses(unlisted, data)
    buffer = "blocks.0.inv_freq" if rotary else "blocks.0.masked_bias"
    value = dict(net.named_buffers())[buffer].numpy()
    assert np.array_equal(weight(listed, buffer), value)
    assert np.array_equal(weight(unlisted, buffer), value) is not rotary


def test_frozen_parameters_are_unchanged(torch: Any) -> None:
    net, data = language_model(torch)
    net.positions.weight.requires_grad = False
    net.blocks[0].wide.weight.requires_grad = False
    before = {name: parameter.detach().clone().numpy() for name, parameter in net.named_parameters()}
    training = session(exported(torch, net, data), parameters(net))
    np.testing.assert_allclose(losses(training, data), losses_of_torch(torch, net, data), rtol=2e-4)
    weights = {name: np.empty_like(value) for name, value in before.items()}
    training.weightsToHost()
    training.readWeights(popart.PyWeightsIO(weights))
    for name, parameter in net.named_parameters():
        np.testing.assert_allclose(weights[name], parameter.detach(), rtol=1e-2, atol=1e-4)
        assert np.array_equal(weights[name], before[name]) is not parameter.requires_grad


def test_merged_initializers_are_reported_with_their_readers(torch: Any) -> None:
    net, data = language_model(torch)
    with pytest.warns(UserWarning, match="merged and are trained as one: .*read by ") as caught:
        session(exported(torch, net, data, training=False))
    assert "do_constant_folding=False" in str(caught[0].message)


def test_batch_norm_trains_as_in_pytorch_if_it_is_exported_for_training(torch: Any) -> None:
    net, data = image_model(torch)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained = losses(session(exported(torch, net, data)), data)
    np.testing.assert_allclose(trained, losses_of_torch(torch, net, data), rtol=2e-4)


@pytest.mark.parametrize(
    ("folded", "text"), [(True, "folded what followed convolutions"), (False, "are in their inference form")]
)
def test_batch_norms_of_inference_are_reported(torch: Any, folded: bool, text: str) -> None:
    net, data = image_model(torch)
    with pytest.warns(UserWarning, match=text):
        session(exported(torch, net, data, training=False, do_constant_folding=folded))


def test_a_loss_of_raw_scores_is_reported(torch: Any) -> None:
    """Losses that are added to an exported model whose outputs are raw scores."""

    def said(logarithms: bool, *ops: str) -> list[str]:
        net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Flatten(0, -2))
        file = io.BytesIO()
        torch.onnx.export(net, (torch.randn(2, 5, 4),), file, dynamo=False, opset_version=10, input_names=["x"])
        builder = popart.Builder(file.getvalue())
        (y,) = builder.getOutputTensorIds()
        for op in ops:
            y = getattr(builder.aiOnnx, op)([y])
        labels = builder.addInputTensor("INT32", [10], "labels")
        loss = builder.aiGraphcore.nllloss([y, labels], inputIsLogProbability=logarithms)
        device = popart.DeviceManager().createIpuModelDevice({})
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            popart.TrainingSession(
                builder.getModelProto(), popart.DataFlow(1, [loss]), loss, popart.ConstSGD(0.1), device
            )
        return [
            str(warning.message) for warning in caught if "may not be trained as intended" in str(warning.message)
        ]

    assert "needs the result of a Softmax" in said(False)[0]
    assert "insert a Softmax" in said(False, "logsoftmax")[0]
    assert "insert a LogSoftmax" in said(True)[0]
    assert said(False, "softmax") == said(True, "logsoftmax") == []


def test_a_list_of_what_is_trained_is_checked() -> None:
    builder = popart.Builder()
    w = builder.addInitializedInputTensor(np.ones(3, np.float32), "weight")
    loss = builder.aiGraphcore.l1loss([w], 0.1)
    model = onnx.load_model_from_string(builder.getModelProto())
    for ids, text in (
        (["weigth"], "'weigth' cannot be trained: it is not an initializer of the model; did you mean 'weight'?"),
        ("weight", "give a list of ids"),
    ):
        with pytest.raises(popart.popart_exception) as caught:
            popart.TrainingSession(
                model.SerializeToString(),
                popart.DataFlow(1, [loss]),
                loss,
                popart.ConstSGD(0.1),
                popart.DeviceManager().createIpuModelDevice({}),
                userOptions=options(trainedWeights=ids),
            )
        assert text in str(caught.value.args[0])
