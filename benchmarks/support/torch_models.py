"""Models of the benchmark of back ends of torch.distributed, each with a batch of inputs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

__all__ = ["MODELS", "mlp"]


def mlp() -> tuple[nn.Module, torch.Tensor]:
    """17 million parameters."""
    layers = [nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(2048, 10)), torch.randn(16, 1024)


class Block(nn.Module):
    """Two convolutions and a skip connection."""

    def __init__(self, into: int, out: int, stride: int) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(into, out, 3, stride, 1, bias=False), nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(out), nn.BatchNorm2d(out)])
        self.skip = nn.Conv2d(into, out, 1, stride, bias=False) if (into, stride) != (out, 1) else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.norms[1](self.two(torch.relu(self.norms[0](self.one(x)))))
        return torch.relu(inner + self.skip(x))


def resnet18() -> tuple[nn.Module, torch.Tensor]:
    """11 million parameters, on images of 32 x 32."""
    widths = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1)]
    blocks = [Block(*width) for width in [*widths, (256, 512, 2), (512, 512, 1)]]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)]
    return nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), *blocks, *head), torch.randn(
        2, 3, 32, 32
    )


class Bert(nn.Module):
    """BERT-small: 4 layers of width 512, 29 million parameters with the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(30522, 512)
        layer = nn.TransformerEncoderLayer(512, 8, 2048, 0.0, "gelu", batch_first=True)
        self.layers, self.head = nn.TransformerEncoder(layer, 4), nn.Linear(512, 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.embed(tokens))[:, 0])


def bert_small() -> tuple[nn.Module, torch.Tensor]:
    return Bert(), torch.randint(0, 30522, (2, 64))


MODELS: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "mlp_17m": mlp,
    "resnet18": resnet18,
    "bert_small": bert_small,
}
