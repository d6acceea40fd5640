"""The networks of ipu_emu.models in eager PyTorch, from the weights of the same ModelProto."""

from __future__ import annotations

from typing import Any

import onnx
import torch
from onnx import numpy_helper
from torch.nn import functional

from ipu_emu.models import Model

__all__ = ["Net", "step_of"]


class Net(torch.nn.Module):
    """Weights by their ids, and one of the functions below."""

    def __init__(self, model: Model, case: str) -> None:
        super().__init__()
        self.case, self.w, self.s = case, {}, {}
        for number, proto in enumerate(onnx.load_model_from_string(model.proto).graph.initializer):
            value = torch.tensor(numpy_helper.to_array(proto))
            if proto.name.endswith(("/mean", "/variance")):
                self.register_buffer(f"s{number}", value)
                self.s[proto.name] = value
            else:
                self.w[proto.name] = torch.nn.Parameter(value)
                self.register_parameter(f"w{number}", self.w[proto.name])

    def forward(self, x: Any) -> Any:
        return FORWARD[self.case](self, x)

    def linear(self, x: Any, name: str) -> Any:
        return torch.addmm(self.w[f"{name}/bias"], x, self.w[f"{name}/weights"])

    def conv(self, x: Any, name: str, stride: int = 1) -> Any:
        w = self.w[f"{name}/weights"]
        y = functional.conv2d(x, w, stride=stride, padding=w.shape[-1] // 2)
        statistics = self.s[f"{name}/mean"], self.s[f"{name}/variance"]
        return functional.batch_norm(y, *statistics, self.w[f"{name}/scale"], self.w[f"{name}/bias"], True)


def mlp(net: Net, x: Any) -> Any:
    for layer in range(3):
        x = torch.addmm(net.w[f"bias{layer}"], x, net.w[f"weights{layer}"])
        x = functional.relu(x) if layer < 2 else x
    return x


def cnn(net: Net, x: Any) -> Any:
    x = functional.relu(net.conv(x, "stem"))
    for name, stride in (("block16", 1), ("block32", 2), ("block64", 2)):
        y = functional.relu(net.conv(x, f"{name}/conv1", stride))
        y = net.conv(y, f"{name}/conv2")
        x = functional.relu(y + (net.conv(x, f"{name}/shortcut", stride) if stride > 1 else x))
    return net.linear(x.mean((2, 3)), "classifier")


def transformer(net: Net, x: Any) -> Any:
    batch, length, heads = *x.shape, 4
    y = (functional.embedding(x, net.w["tokens"]) + net.w["positions"]).flatten(0, 1)
    width = y.shape[1]
    for layer in ("layer0", "layer1"):
        n = functional.layer_norm(y, (width,), net.w[f"{layer}/norm1/scale"], net.w[f"{layer}/norm1/bias"])
        parts = (net.linear(n, f"{layer}/attention/{part}") for part in "qkv")
        q, k, v = (part.view(batch, length, heads, width // heads).transpose(1, 2) for part in parts)
        a = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y + net.linear(a.transpose(1, 2).reshape(-1, width), f"{layer}/attention/out")
        n = functional.layer_norm(y, (width,), net.w[f"{layer}/norm2/scale"], net.w[f"{layer}/norm2/bias"])
        y = y + net.linear(functional.gelu(net.linear(n, f"{layer}/feed_forward/up")), f"{layer}/feed_forward/down")
    y = functional.layer_norm(y, (width,), net.w["norm/scale"], net.w["norm/bias"])
    return net.linear(y, "classifier")


FORWARD = {"mlp": mlp, "cnn": cnn, "transformer": transformer}


def step_of(model: Model, case: str, data: Any, labels: Any, *, rate: float, momentum: float, parallel: bool) -> Any:
    """A function that makes one step and returns its loss; ``parallel`` with DistributedDataParallel over gloo."""
    torch.set_num_threads(1)
    net: Any = Net(model, case)
    if parallel:
        torch.distributed.init_process_group("gloo")
        net = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=rate, momentum=momentum)
    x, t = torch.tensor(data), torch.tensor(labels).long()
    x = x.long() if x.dtype == torch.int32 else x

    def step() -> float:
        optimizer.zero_grad()
        loss = functional.cross_entropy(net(x), t)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step
