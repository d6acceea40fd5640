"""Language: published networks for sequences of tokens, written as their common implementations compute them."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional

__all__ = ["T5", "Bert", "Gpt2", "Llama", "LstmModel", "WhisperEncoder"]

WORDS = 1000


def heads_of(x: Any, heads: int) -> Any:
    n, t, width = x.shape
    return x.view(n, t, heads, width // heads).transpose(1, 2)


def joined(x: Any) -> Any:
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


class Attention(nn.Module):
    """Attention with projections, as written out before there was one function for it."""

    def __init__(self, width: int, heads: int, *, bias: bool = True, scaled: bool = True) -> None:
        super().__init__()
        self.heads, self.scale = heads, 1 / math.sqrt(width // heads) if scaled else 1.0
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=bias) for _ in range(4))

    def forward(self, x: Any, memory: Any = None, add: Any = None, turn: Any = None) -> Any:
        memory = x if memory is None else memory
        q, k, v = (heads_of(f(y), self.heads) for f, y in ((self.q, x), (self.k, memory), (self.v, memory)))
        if turn is not None:
            q, k = turn(q), turn(k)
        scores = torch.matmul(q, k.transpose(-1, -2)) * self.scale
        scores = scores if add is None else scores + add
        return self.out(joined(torch.matmul(torch.softmax(scores, -1), v)))


def later_hidden(t: int) -> torch.Tensor:
    return torch.full((t, t), -1e9).triu(1)


class Bert(nn.Module):
    """BERT-small: 4 layers, width 512, 8 heads, after-normalisation, erf GELU (Turc et al., 2019)."""

    def __init__(self, length: int = 128, width: int = 512, depth: int = 4, heads: int = 8) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(WORDS, width), nn.Parameter(0.02 * torch.randn(length, width))
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.blocks = nn.ModuleList(BertBlock(width, heads) for _ in range(depth))
        self.head = nn.Linear(width, WORDS)

    def forward(self, x: Any) -> Any:
        x = self.norm(self.tokens(x) + self.positions)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class BertBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention, self.first = Attention(width, heads), nn.LayerNorm(width, eps=1e-12)
        self.up, self.down, self.second = (
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
            nn.LayerNorm(width, eps=1e-12),
        )

    def forward(self, x: Any) -> Any:
        x = self.first(x + self.attention(x))
        return self.second(x + self.down(functional.gelu(self.up(x))))


def new_gelu(x: Any) -> Any:
    """The tanh form as GPT-2's implementation writes it."""
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class Gpt2(nn.Module):
    """GPT-2 of 4 layers, width 384 (Radford et al., 2019)."""

    def __init__(self, length: int = 128, width: int = 384, depth: int = 4, heads: int = 6) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(WORDS, width), nn.Parameter(0.02 * torch.randn(length, width))
        self.blocks = nn.ModuleList(Gpt2Block(width, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, WORDS, bias=False)
        self.register_buffer("hidden", later_hidden(length))

    def forward(self, x: Any) -> Any:
        x = self.tokens(x) + self.positions
        for block in self.blocks:
            x = block(x, self.hidden)
        return self.head(self.norm(x))


class Gpt2Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.first, self.second = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any, hidden: Any) -> Any:
        q, k, v = (heads_of(part, self.heads) for part in self.qkv(self.first(x)).split(x.shape[-1], 2))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.shape[-1]) + hidden
        x = x + self.out(joined(torch.matmul(torch.softmax(scores, -1), v)))
        return x + self.down(new_gelu(self.up(self.second(x))))


class RmsNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Any) -> Any:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Llama(nn.Module):
    """Llama of 4 layers, width 384: rotary positions, RMS normalisation, SwiGLU (Touvron et al., 2023)."""

    def __init__(self, length: int = 128, width: int = 384, depth: int = 4, heads: int = 6) -> None:
        super().__init__()
        self.tokens, size = nn.Embedding(WORDS, width), width // heads
        self.blocks = nn.ModuleList(LlamaBlock(width, heads) for _ in range(depth))
        self.norm, self.head = RmsNorm(width), nn.Linear(width, WORDS, bias=False)
        angles = torch.outer(torch.arange(length), 10000.0 ** -(torch.arange(0, size, 2) / size)).repeat(1, 2)
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())
        self.register_buffer("hidden", later_hidden(length))

    def turned(self, x: Any) -> Any:
        half = x.shape[-1] // 2
        return x * self.cosine + torch.cat([-x[..., half:], x[..., :half]], -1) * self.sine

    def forward(self, x: Any) -> Any:
        x = self.tokens(x)
        for block in self.blocks:
            x = block(x, self.hidden, self.turned)
        return self.head(self.norm(x))


class LlamaBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention, self.first, self.second = (
            Attention(width, heads, bias=False),
            RmsNorm(width),
            RmsNorm(width),
        )
        inner = 8 * width // 3
        self.gate, self.up, self.down = (
            nn.Linear(width, inner, bias=False),
            nn.Linear(width, inner, bias=False),
            nn.Linear(inner, width, bias=False),
        )

    def forward(self, x: Any, hidden: Any, turn: Any) -> Any:
        x = x + self.attention(self.first(x), add=hidden, turn=turn)
        y = self.second(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class T5(nn.Module):
    """T5-small's form with 2 + 2 layers: relative positions, RMS normalisation, no biases (Raffel et al., 2020)."""

    def __init__(self, length: int = 64, width: int = 512, depth: int = 2, heads: int = 8) -> None:
        super().__init__()
        self.tokens = nn.Embedding(WORDS, width)
        self.encoder = nn.ModuleList(T5Block(width, heads, crosses=False) for _ in range(depth))
        self.decoder = nn.ModuleList(T5Block(width, heads, crosses=True) for _ in range(depth))
        self.biases = nn.ModuleList(nn.Embedding(32, heads) for _ in range(2))
        self.norms, self.head = nn.ModuleList(RmsNorm(width) for _ in range(2)), nn.Linear(width, WORDS, bias=False)
        distance = torch.arange(length)[None] - torch.arange(length)[:, None]
        self.register_buffer("buckets", distance.clamp(-15, 16) + 15)
        self.register_buffer("hidden", later_hidden(length))

    def forward(self, x: Any) -> Any:
        tokens = self.tokens(x)
        both, earlier = (bias(self.buckets).permute(2, 0, 1)[None] for bias in self.biases)
        memory = tokens
        for block in self.encoder:
            memory = block(memory, both)
        memory, y = self.norms[0](memory), tokens
        for block in self.decoder:
            y = block(y, earlier + self.hidden, memory)
        return self.head(self.norms[1](y))


class T5Block(nn.Module):
    def __init__(self, width: int, heads: int, *, crosses: bool) -> None:
        super().__init__()
        self.attention = Attention(width, heads, bias=False, scaled=False)
        self.across = Attention(width, heads, bias=False, scaled=False) if crosses else None
        self.norms = nn.ModuleList(RmsNorm(width) for _ in range(3 if crosses else 2))
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Any, add: Any, memory: Any = None) -> Any:
        x = x + self.attention(self.norms[0](x), add=add)
        if self.across is not None:
            x = x + self.across(self.norms[2](x), memory)
        return x + self.down(functional.relu(self.up(self.norms[1](x))))


class WhisperEncoder(nn.Module):
    """Whisper's encoder (tiny, half its length): two convolutions, 4 layers of width 384 (Radford et al., 2022)."""

    def __init__(self, frames: int = 256, width: int = 384, depth: int = 4, heads: int = 6) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(80, width, 3, padding=1), nn.Conv1d(width, width, 3, 2, 1)
        self.positions = nn.Parameter(0.02 * torch.randn(frames // 2, width))
        self.blocks, self.norm = nn.ModuleList(WhisperBlock(width, heads) for _ in range(depth)), nn.LayerNorm(width)
        self.head = nn.Linear(width, 100)

    def forward(self, x: Any) -> Any:
        x = functional.gelu(self.second(functional.gelu(self.first(x)))).transpose(1, 2) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


class WhisperBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention, self.first, self.second = Attention(width, heads), nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.first(x))
        return x + self.down(functional.gelu(self.up(self.second(x))))


class LstmModel(nn.Module):
    """A language model of two LSTM layers, width 256 (Zaremba et al., 2014)."""

    def __init__(self, width: int = 256, layers: int = 2) -> None:
        super().__init__()
        self.tokens, self.lstm = nn.Embedding(WORDS, width), nn.LSTM(width, width, layers)
        self.head = nn.Linear(width, WORDS)

    def forward(self, x: Any) -> Any:
        return self.head(self.lstm(self.tokens(x.transpose(0, 1)))[0].transpose(0, 1))
