"""Slices and updates at computed positions, indexing, buffers, inputs that change, and arguments of custom types."""

import poptorch
import torch
from torch import nn


class DS(nn.Module):
    def forward(self, t, i, src):
        a = poptorch.dynamic_slice(t, 0, i, 2, 1)
        b = poptorch.dynamic_update(t, src, 0, i, 2)
        return a, b


t = torch.arange(12.0).reshape(6, 2)
a, b = poptorch.inferenceModel(DS())(t, torch.tensor([2]), torch.ones(2, 2) * 9)
assert torch.equal(a, t[2:4])
assert torch.equal(b[2:4], torch.full((2, 2), 9.0))
assert torch.equal(b[4:], t[4:])


class Beam(nn.Module):
    def forward(self, p, lengths):
        return poptorch.ctc_beam_search_decoder(p, lengths, blank=0, beam_width=3, top_paths=2)


o = poptorch.inferenceModel(Beam())(torch.log_softmax(torch.randn(4, 1, 3), 2), torch.tensor([4]))
assert [tuple(tensor.shape) for tensor in o] == [(1, 2), (1, 2), (1, 2, 4)]


class Up(nn.Module):
    def __init__(self):
        super().__init__()
        self.u = nn.Upsample(scale_factor=2, mode="nearest")
        self.b = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)

    def forward(self, x):
        return self.u(x), self.b(x), nn.functional.interpolate(x, size=(8, 8))


x = torch.randn(1, 2, 4, 4)
u = Up()
for p, q in zip(poptorch.inferenceModel(u)(x), u(x), strict=False):
    assert torch.allclose(p, q, atol=1e-5)


class Idx(nn.Module):
    def forward(self, x, i, v):
        y = x.clone()
        y[i] = v
        z = torch.zeros(5, 2).index_put((i,), v, accumulate=True)
        w = torch.zeros(5, 2).scatter_add(0, i[:, None].expand(-1, 2), v)
        return y, z, w, x.gather(0, i[:, None].expand(-1, 2)), x.index_select(0, i)


i = torch.tensor([1, 3, 1])
v = torch.randn(3, 2)
x = torch.randn(5, 2)
v[2] = v[0]
for p, q in zip(poptorch.inferenceModel(Idx())(x, i, v), Idx()(x, i, v), strict=False):
    assert torch.allclose(p, q, atol=1e-6), (p, q)


class Cond(nn.Module):
    def forward(self, c, x, y):
        return poptorch.cond(c, lambda a, b: [a + b], [x, y], lambda a, b: [a - b], [x, y])


assert poptorch.inferenceModel(Cond())(torch.tensor([True]), torch.ones(1), torch.ones(1))[0].item() == 2


class Buf(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("i", torch.tensor([0.0]))
        self.register_buffer("c", torch.tensor(0))

    def forward(self, x):
        self.i += 1
        self.c += 1
        return x + self.i


m = poptorch.inferenceModel(Buf())
assert [float(m(torch.zeros(1))) for _ in range(3)] == [1, 2, 3]
m.copyWeightsToHost()
assert m.i.item() == 3


class Inp(nn.Module):
    def forward(self, x, y):
        x += y
        x += 2
        x += y
        return


x = torch.tensor([1.0])
r = poptorch.inferenceModel(Inp())(x, torch.tensor([2.0]))
assert x.item() == 7
assert r is None


class Pair:
    def __init__(self, a, b):
        self.a, self.b = a, b


class P(poptorch.ICustomArgParser):
    def yieldTensors(self, st):
        yield st.a
        yield st.b

    def reconstruct(self, o, it):
        return Pair(next(it), next(it))


poptorch.registerCustomArgParser(Pair, P())


class PM(nn.Module):
    def forward(self, p):
        return Pair(p.a + p.b, p.a * p.b)


pairs = poptorch.inferenceModel(PM())
for first, second in ((1.0, 3.0), (2.0, 5.0)):
    o = pairs(Pair(torch.full((1,), first), torch.full((1,), second)))
    assert (o.a.item(), o.b.item()) == (first + second, first * second)


class Fac(nn.Module):
    def forward(self, x):
        return (
            x
            + torch.arange(3)
            + torch.ones(3)
            + torch.zeros(3, device=x.device)
            + torch.full((3,), 2.0)
            + torch.randn(3) * 0
        )


assert torch.allclose(poptorch.inferenceModel(Fac())(torch.zeros(3)), torch.tensor([3.0, 4.0, 5.0]))


class Rand(nn.Module):
    def forward(self, x):
        return (
            torch.rand(1000) + x,
            torch.bernoulli(torch.full((1000,), 0.3)),
            torch.randint(0, 5, (1000,)),
            torch.distributions.Normal(torch.zeros(100), 1.0).sample(),
        )


means = [float(q.float().mean()) for q in poptorch.inferenceModel(Rand())(torch.zeros(1))]
assert all(abs(mean - expected) < 0.5 for mean, expected in zip(means, (0.5, 0.3, 2.0, 0.0), strict=False)), means
