"""Architectures: 20 steps of each equal eager PyTorch, with a learning rate that changes in between."""

import copy
import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import ipu_emu.poptorch as poptorch  # noqa: E402

pytestmark = pytest.mark.torch


class Language(nn.Module):
    """An LSTM language model, or one with another recurrent layer."""

    def __init__(self, layer=nn.LSTM):
        super().__init__()
        self.table = nn.Embedding(11, 8)
        self.layer = layer(8, 8, num_layers=2, batch_first=True, bidirectional=layer is nn.GRU)
        self.head = nn.Linear(16 if layer is nn.GRU else 8, 11)

    def forward(self, ids):
        y, _ = self.layer(self.table(ids[:, :-1]))
        return F.cross_entropy(self.head(y).flatten(0, 1), ids[:, 1:].flatten())


class Transformer(nn.Module):
    """An encoder with a causal mask and learnt positions."""

    def __init__(self):
        super().__init__()
        self.table, self.places = nn.Embedding(11, 8), nn.Parameter(torch.randn(6, 8) * 0.1)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, activation="gelu")
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(6))

    def forward(self, ids):
        y = self.layers(self.table(ids) + self.places, mask=self.mask)
        return F.cross_entropy((y @ self.table.weight.t()).flatten(0, 1), ids.roll(1, 1).flatten())


class Llama(nn.Module):
    """RMS normalisation, rotary positions, grouped heads, gated activation."""

    def __init__(self):
        super().__init__()
        self.table, self.norm = nn.Embedding(11, 8), nn.RMSNorm(8)
        self.q, self.kv, self.o = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False), nn.Linear(8, 8)
        self.gate, self.up, self.down = nn.Linear(8, 12), nn.Linear(8, 12), nn.Linear(12, 8)
        angles = torch.outer(torch.arange(6.0), torch.tensor([1.0, 0.1]))
        self.register_buffer("cos", angles.cos().repeat(1, 2))
        self.register_buffer("sin", angles.sin().repeat(1, 2))

    def turned(self, x):
        half = torch.cat((-x[..., 2:], x[..., :2]), -1)
        return x * self.cos + half * self.sin

    def forward(self, ids):
        x = self.table(ids)
        h = self.norm(x)
        n = ids.shape[0]
        q = self.turned(self.q(h).view(n, 6, 2, 4).transpose(1, 2))
        k, v = self.kv(h).view(n, 6, 2, 4).chunk(2, dim=2)
        k, v = self.turned(k.transpose(1, 2)), v.transpose(1, 2)
        k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, 6, 8)
        x = x + self.o(y)
        x = x + self.down(F.silu(self.gate(x)) * self.up(x))
        return F.cross_entropy((x @ self.table.weight.t()).flatten(0, 1), ids.roll(1, 1).flatten())


class Images(nn.Module):
    """A network for images with a loss."""

    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x, target):
        return F.cross_entropy(self.body(x), target)


class Residual(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return F.relu(x + self.layers(x))


class Squeeze(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.a, self.b = nn.Conv2d(channels, 2, 1), nn.Conv2d(2, channels, 1)

    def forward(self, x):
        return x * self.b(F.silu(self.a(x.mean((2, 3), keepdim=True)))).sigmoid()


class Unet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
        self.up, self.out = nn.ConvTranspose2d(8, 4, 2, stride=2), nn.Conv2d(8, 5, 1)
        self.norm = nn.InstanceNorm2d(4, affine=True)

    def forward(self, x):
        a = F.leaky_relu(self.norm(self.a(x)))
        b = F.relu(self.b(F.max_pool2d(a, 2)))
        return self.out(torch.cat([a, self.up(b)], 1)).mean((2, 3))


class Swin(nn.Module):
    """Shifted windows with a bias table."""

    def __init__(self):
        super().__init__()
        self.stem, self.qkv, self.head = nn.Conv2d(3, 8, 2, 2), nn.Linear(8, 24), nn.Linear(8, 5)
        self.bias = nn.Parameter(torch.randn(9) * 0.1)
        self.register_buffer("index", torch.tensor([[4, 3, 1, 0], [5, 4, 2, 1], [7, 6, 4, 3], [8, 7, 5, 4]]))

    def forward(self, x):
        y = self.stem(x).permute(0, 2, 3, 1).roll((-1, -1), (1, 2))
        n = y.shape[0]
        w = y.view(n, 2, 2, 2, 2, 8).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, 8)
        q, k, v = self.qkv(w).unflatten(2, (3, 8)).unbind(2)
        a = (q @ k.mT * 8**-0.5 + self.bias[self.index]).softmax(-1) @ v
        return self.head(a.view(n, -1, 8).mean(1))


class Decoder(nn.Module):
    """A GRU that reads a sentence, and a GRU cell that writes it, word by word; 0 is padding."""

    def __init__(self):
        super().__init__()
        self.table, self.encoder = nn.Embedding(11, 8, padding_idx=0), nn.GRU(8, 8, batch_first=True)
        self.cell, self.head = nn.GRUCell(8, 8), nn.Linear(8, 11)

    def forward(self, ids):
        _, (state,) = self.encoder(self.table(ids))
        words = []
        for place in range(ids.shape[1]):
            state = self.cell(self.table(ids[:, place]), state)
            words.append(self.head(state))
        return F.nll_loss(torch.stack(words, 2).log_softmax(1), ids, ignore_index=0)


class Messages(nn.Module):
    """A graph network: each node takes the mean of itself and its neighbours, by scattered sums."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 3)

    def means(self, x, edges):
        source, target = edges
        degree = torch.ones(len(x)).scatter_add(0, target, torch.ones(len(target)))
        return (x.index_add(0, target, x.index_select(0, source))) / degree[:, None]

    def forward(self, x, edges, classes):
        y = self.means(F.relu(self.means(self.a(x), edges)), edges)
        return F.cross_entropy(self.b(y), classes)


def half_block():
    return nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)


def resnet():
    blocks = [Residual(*half_block(), nn.ReLU(), *half_block()) for _ in range(2)]
    stem = (nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))


def mobilenet():
    deep = nn.Conv2d(12, 12, 3, padding=1, groups=12, bias=False)
    body = (
        nn.Conv2d(3, 12, 1),
        nn.GroupNorm(3, 12),
        nn.Hardswish(),
        deep,
        nn.ReLU6(),
        Squeeze(12),
        nn.Conv2d(12, 5, 1),
    )
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def convnext():
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.a, self.b = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)
            self.scale = nn.Parameter(torch.full((8,), 0.3))

        def forward(self, x):
            y = self.b(F.gelu(self.a(self.norm(x.permute(0, 2, 3, 1))))) * self.scale
            return x + y.permute(0, 3, 1, 2)

    return nn.Sequential(nn.Conv2d(3, 8, 4, 4), Last(), nn.Flatten(), nn.Linear(32, 5))


DATA = {
    "ids": lambda: (torch.randint(0, 11, (3, 6)),),
    "images": lambda: (torch.randn(4, 3, 8, 8), torch.randint(0, 5, (4,))),
    "graph": lambda: (torch.randn(6, 4), torch.randint(0, 6, (2, 10)), torch.randint(0, 3, (6,))),
}
MODELS = {
    "LSTM": (Language, "ids"),
    "GRU": (lambda: Language(nn.GRU), "ids"),
    "RNN": (lambda: Language(nn.RNN), "ids"),
    "transformer": (Transformer, "ids"),
    "Llama-like": (Llama, "ids"),
    "ResNet": (lambda: Images(resnet()), "images"),
    "MobileNet": (lambda: Images(mobilenet()), "images"),
    "ConvNeXt": (lambda: Images(convnext()), "images"),
    "U-Net": (lambda: Images(Unet()), "images"),
    "Swin": (lambda: Images(Swin()), "images"),
    "decoder": (Decoder, "ids"),
    "graph network": (Messages, "graph"),
}
# Biases of attention keys and before normalisations have gradients of rounding errors, which Adam divides by epsilon.
OPTIMISERS = {
    "SGD": lambda p: torch.optim.SGD(p, 0.05),
    "momentum": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9),
    "Adam": lambda p: torch.optim.Adam(p, 1e-3, eps=1e-5),
    "AdamW": lambda p: torch.optim.AdamW(p, 1e-3, eps=1e-5),
}
USUAL = {"LSTM": "AdamW", "GRU": "Adam", "RNN": "SGD", "transformer": "momentum", "Llama-like": "AdamW"}
USUAL |= {"ResNet": "momentum", "MobileNet": "AdamW", "ConvNeXt": "Adam", "U-Net": "Adam", "Swin": "SGD"}
USUAL |= {"decoder": "AdamW", "graph network": "momentum"}


@pytest.mark.parametrize(
    ("name", "optimiser"),
    [
        pytest.param(name, optimiser, marks=() if USUAL[name] == optimiser else pytest.mark.full)
        for name in MODELS
        for optimiser in OPTIMISERS
    ],
)
def test_training_equals_eager_pytorch(name, optimiser):
    make, kind = MODELS[name]
    optimiser = OPTIMISERS[optimiser]
    torch.manual_seed(0)
    module = make()
    other = copy.deepcopy(module)
    mine, theirs = optimiser(module.parameters()), optimiser(other.parameters())
    schedules = [torch.optim.lr_scheduler.StepLR(optimizer, 4) for optimizer in (mine, theirs)]
    model = poptorch.trainingModel(module, poptorch.Options(), mine)
    for _ in range(20):
        data = DATA[kind]()
        theirs.zero_grad()
        expected = other(*data)
        expected.backward()
        theirs.step()
        torch.testing.assert_close(model(*data), expected.detach(), rtol=1e-5, atol=1e-5)
        for schedule in schedules:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                schedule.step()
        model.setOptimizer(mine)
    for (id, a), b in zip(module.state_dict().items(), other.state_dict().values(), strict=True):
        if "num_batches" not in id:
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5, msg=lambda text, id=id: f"{id}: {text}")
