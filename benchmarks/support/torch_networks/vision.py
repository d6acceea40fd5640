"""Vision: published networks for images, written from their papers, with the usual sizes and fewer classes."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

__all__ = ["ConvNeXt", "MobileNetV2", "MobileNetV3", "ResNet", "SqueezeNet", "ViT", "mlp"]

CLASSES = 100


def mlp(width: int = 1024) -> nn.Module:
    """784 - 1024 - 1024 - 100 with ReLU."""
    layers = [nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, CLASSES)]
    return nn.Sequential(*layers)


def conv(
    c: int, m: int, kernel: int, stride: int = 1, groups: int = 1, activation: type[nn.Module] | None = nn.ReLU
) -> nn.Module:
    """Convolution, batch normalisation, activation."""
    layers: list[nn.Module] = [
        nn.Conv2d(c, m, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(m),
    ]
    return nn.Sequential(*layers, *([activation()] if activation else []))


class ResNet(nn.Module):
    """ResNet-18 (He et al., 2015)."""

    def __init__(self, blocks: tuple[int, ...] = (2, 2, 2, 2), first: int = 64) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, first, 7, 2), nn.MaxPool2d(3, 2, 1))
        self.blocks, width = nn.ModuleList(), first
        for stage, count in enumerate(blocks):
            for number in range(count):
                stride = 2 if stage and not number else 1
                self.blocks.append(BasicBlock(width, first << stage, stride))
                width = first << stage
        self.classifier = nn.Linear(width, CLASSES)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.classifier(x.mean((2, 3)))


class BasicBlock(nn.Module):
    def __init__(self, c: int, m: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(c, m, 3, stride), conv(m, m, 3, activation=None))
        self.shortcut = conv(c, m, 1, stride, activation=None) if stride > 1 or c != m else nn.Identity()

    def forward(self, x: Any) -> Any:
        return functional.relu(self.body(x) + self.shortcut(x))


class MobileNetV2(nn.Module):
    """Inverted residuals with ReLU6 (Sandler et al., 2018)."""

    rows = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))

    def __init__(self) -> None:
        super().__init__()
        self.stem, width, self.blocks = conv(3, 32, 3, 2, activation=nn.ReLU6), 32, nn.ModuleList()
        for expansion, out, count, stride in self.rows:
            for number in range(count):
                inner, by = width * expansion, stride if number == 0 else 1
                first = [conv(width, inner, 1, activation=nn.ReLU6)] if expansion > 1 else []
                middle = conv(inner, inner, 3, by, inner, nn.ReLU6)
                self.blocks.append(nn.Sequential(*first, middle, conv(inner, out, 1, activation=None)))
                width = out
        self.head, self.classifier = conv(width, 1280, 1, activation=nn.ReLU6), nn.Linear(1280, CLASSES)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        for block in self.blocks:
            y = block(x)
            x = x + y if x.shape == y.shape else y
        return self.classifier(self.head(x).mean((2, 3)))


class MobileNetV3(nn.Module):
    """MobileNetV3-small: squeeze and excitation, hard swish (Howard et al., 2019)."""

    #: kernel, inner width, width, squeeze and excitation, hard swish, stride
    rows = (
        (3, 16, 16, 1, 0, 2), (3, 72, 24, 0, 0, 2), (3, 88, 24, 0, 0, 1), (5, 96, 40, 1, 1, 2), (5, 240, 40, 1, 1, 1),
        (5, 240, 40, 1, 1, 1), (5, 120, 48, 1, 1, 1), (5, 144, 48, 1, 1, 1), (5, 288, 96, 1, 1, 2),
        (5, 576, 96, 1, 1, 1), (5, 576, 96, 1, 1, 1),
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.stem, width, self.blocks = conv(3, 16, 3, 2, activation=nn.Hardswish), 16, nn.ModuleList()
        for kernel, inner, out, squeezes, swish, stride in self.rows:
            activation = nn.Hardswish if swish else nn.ReLU
            first = [conv(width, inner, 1, activation=activation)] if inner != width else []
            middle = [conv(inner, inner, kernel, stride, inner, activation), *([Squeeze(inner)] if squeezes else [])]
            self.blocks.append(nn.Sequential(*first, *middle, conv(inner, out, 1, activation=None)))
            width = out
        self.head = conv(width, 576, 1, activation=nn.Hardswish)
        self.classifier = nn.Sequential(nn.Linear(576, 1024), nn.Hardswish(), nn.Linear(1024, CLASSES))

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        for block in self.blocks:
            y = block(x)
            x = x + y if x.shape == y.shape else y
        return self.classifier(self.head(x).mean((2, 3)))


class Squeeze(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        inner = max(8, (c // 4 + 4) // 8 * 8)
        self.down, self.up = nn.Conv2d(c, inner, 1), nn.Conv2d(inner, c, 1)

    def forward(self, x: Any) -> Any:
        return x * functional.hardsigmoid(self.up(functional.relu(self.down(x.mean((2, 3), keepdim=True)))))


class SqueezeNet(nn.Module):
    """SqueezeNet 1.1 (Iandola et al., 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 3, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 0))
        rows = ((64, 16, 64), (128, 16, 64), None, (128, 32, 128), (256, 32, 128), None)
        rows += ((256, 48, 192), (384, 48, 192), (384, 64, 256), (512, 64, 256))
        self.body = nn.Sequential(*(Fire(*row) if row else nn.MaxPool2d(3, 2, 0) for row in rows))
        self.classifier = nn.Conv2d(512, CLASSES, 1)

    def forward(self, x: Any) -> Any:
        return functional.relu(self.classifier(self.body(self.stem(x)))).mean((2, 3))


class Fire(nn.Module):
    def __init__(self, c: int, squeeze: int, expand: int) -> None:
        super().__init__()
        self.squeeze, self.one = nn.Conv2d(c, squeeze, 1), nn.Conv2d(squeeze, expand, 1)
        self.three = nn.Conv2d(squeeze, expand, 3, padding=1)

    def forward(self, x: Any) -> Any:
        x = functional.relu(self.squeeze(x))
        return torch.cat([functional.relu(self.one(x)), functional.relu(self.three(x))], 1)


class ConvNeXt(nn.Module):
    """ConvNeXt-tiny (Liu et al., 2022)."""

    def __init__(self, depths: tuple[int, ...] = (3, 3, 9, 3), widths: tuple[int, ...] = (96, 192, 384, 768)) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, widths[0], 4, 4), ChannelNorm(widths[0])]
        for stage, (depth, width) in enumerate(zip(depths, widths, strict=True)):
            if stage:
                layers += [ChannelNorm(widths[stage - 1]), nn.Conv2d(widths[stage - 1], width, 2, 2)]
            layers += [ConvNeXtBlock(width) for _ in range(depth)]
        self.body = nn.Sequential(*layers)
        self.norm, self.classifier = nn.LayerNorm(widths[-1], eps=1e-6), nn.Linear(widths[-1], CLASSES)

    def forward(self, x: Any) -> Any:
        return self.classifier(self.norm(self.body(x).mean((2, 3))))


class ChannelNorm(nn.LayerNorm):
    """Layer normalisation over the channels of [N, C, H, W]."""

    def __init__(self, c: int) -> None:
        super().__init__(c, eps=1e-6)

    def forward(self, x: Any) -> Any:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(c, c, 7, padding=3, groups=c), nn.LayerNorm(c, eps=1e-6)
        self.up, self.down = nn.Linear(c, 4 * c), nn.Linear(4 * c, c)
        self.scale = nn.Parameter(torch.full((c,), 1e-6))

    def forward(self, x: Any) -> Any:
        y = self.down(functional.gelu(self.up(self.norm(self.conv(x).permute(0, 2, 3, 1)))))
        return x + (y * self.scale).permute(0, 3, 1, 2)


class ViT(nn.Module):
    """ViT-small: width 384, 6 heads (Dosovitskiy et al., 2021)."""

    def __init__(self, size: int = 64, patch: int = 8, width: int = 384, depth: int = 6, heads: int = 6) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2 + 1, width))
        self.blocks = nn.ModuleList(ViTBlock(width, heads) for _ in range(depth))
        self.norm, self.classifier = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, x: Any) -> Any:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.classifier(self.norm(x)[:, 0])


class ViTBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.before, self.after = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        n, t, width = x.shape
        qkv = self.qkv(self.before(x)).reshape(n, t, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        a = functional.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2])
        x = x + self.out(a.transpose(1, 2).reshape(n, t, width))
        return x + self.down(functional.gelu(self.up(self.after(x))))
