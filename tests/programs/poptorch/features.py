"""Tied and frozen weights, groups of parameters, several losses, hints to the compiler, and refused programs."""

import copy

import poptorch
import torch
import torch.nn.functional as F
from torch import nn


def refused(kind, text, call):
    """Check that ``call`` raises ``kind`` with ``text``."""
    try:
        call()
    except kind as error:
        message = str(error)
    else:
        raise SystemExit(f"accepted: {text}")
    assert text in message, message


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(12, 6, padding_idx=0)
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, 12, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, ids, labels):
        h = poptorch.recomputationCheckpoint(self.norm(self.emb(ids)))
        w = poptorch.serializedMatMul(
            h, self.head.weight.t(), poptorch.MatMulSerializationMode.OutputChannels, 4, keep_precision=True
        )
        return w, F.cross_entropy(w.view(-1, 12), labels.view(-1), ignore_index=-100)


torch.manual_seed(0)
m = Tied()
e = copy.deepcopy(m)
t = poptorch.trainingModel(m, poptorch.Options(), poptorch.optim.Adam(m.parameters(), lr=0.01))
eo = torch.optim.Adam(e.parameters(), lr=0.01)
ids = torch.randint(0, 12, (4, 5))
lab = torch.randint(0, 12, (4, 5))
lab[0, 0] = -100


def ref(e):
    h = e.norm(e.emb(ids))
    w = h @ e.head.weight.t()
    return F.cross_entropy(w.view(-1, 12), lab.view(-1))


for _ in range(5):
    _, loss = t(ids, lab)
    eo.zero_grad()
    le = ref(e)
    le.backward()
    eo.step()
    assert abs(loss - le) < 1e-5
assert torch.allclose(m.emb.weight, e.emb.weight, atol=1e-5)
assert m.head.weight is m.emb.weight
net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
for p in net[0].parameters():
    p.requires_grad = False


class L(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.n = n

    def forward(self, x, y):
        o = self.n(x)
        a = F.mse_loss(o, y)
        b = F.l1_loss(o, y)
        return o, a, b, poptorch.identity_loss(a + 0.5 * b, reduction="none")


w0 = net[0].weight.clone()
w2 = net[2].weight.clone()
opt = poptorch.optim.AdamW(
    [{"params": [net[2].weight], "weight_decay": 0.1, "lr": 0.01}, {"params": [net[2].bias], "weight_decay": 0.0}],
    lr=0.1,
)
t = poptorch.trainingModel(L(net), poptorch.Options(), opt)
r = t(torch.randn(4, 3), torch.randn(4, 2))
assert len(r) == 4
assert torch.equal(net[0].weight, w0)
assert not torch.equal(net[2].weight, w2)
opt.param_groups[0]["lr"] = 0.5
t.setOptimizer(opt)
t(torch.randn(4, 3), torch.randn(4, 2))


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = nn.Linear(2, 2)

    def forward(self, x):
        o = self.n(x)
        return F.mse_loss(o, x), F.l1_loss(o, x)


refused(poptorch.Error, "Multiple independent losses", lambda: poptorch.trainingModel(Two())(torch.ones(1, 2)))


class Unmarked(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = nn.Linear(2, 2)

    def forward(self, x):
        return self.n(x).mean()


refused(poptorch.Error, "Couldn't find a loss", lambda: poptorch.trainingModel(Unmarked())(torch.ones(1, 2)))


class MC(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (nn.Conv2d(1, 4, k, padding=k // 2) for k in (1, 3, 5))

    def forward(self, x):
        multi_conv = (
            poptorch.MultiConv()
            .planType(poptorch.MultiConvPlanType.Parallel)
            .partialsTypes(torch.float)
            .perConvReservedTiles(100)
            .cycleBackOff(0.3)
            .enableConvDithering(True)
            .availableMemoryProportions((0.1, 0.2, 0.3))
        )
        with multi_conv:
            y = (self.a(x), self.b(x), self.c(x))
        return torch.cat(y, 1)


mc = MC()
x = torch.randn(1, 1, 6, 6)
assert torch.allclose(poptorch.inferenceModel(mc)(x), torch.cat([mc.a(x), mc.b(x), mc.c(x)], 1), atol=1e-5)


class Loop(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(3, 3)

    def forward(self, x, y):
        def body(a, b):
            return self.l(a) * 0.5 + b, b + 1

        return poptorch.for_loop(3, body, [x, y])


lp = Loop()
a, b = poptorch.inferenceModel(lp)(torch.ones(2, 3), torch.zeros(2, 3))
xa, xb = torch.ones(2, 3), torch.zeros(2, 3)
for _ in range(3):
    xa, xb = lp.l(xa) * 0.5 + xb, xb + 1
assert torch.allclose(a, xa, atol=1e-6)
assert torch.equal(b, xb)
for bad, err in (
    (lambda: poptorch.for_loop(3, lambda a: a, torch.ones(1)), "not list"),
    (lambda: poptorch.for_loop(3, lambda a: a, [1]), "index 0"),
):
    refused(ValueError, err, bad)


class CO(nn.Module):
    def forward(self, x):
        return poptorch.custom_op([x], "Cube", "com.acme", 1, example_outputs=[x], attributes={"a": 0.1})[0]


refused(poptorch.Error, "com.acme.Cube", lambda: poptorch.inferenceModel(CO())(torch.ones(1)))


class CTC(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 5)
        self.loss = nn.CTCLoss()

    def forward(self, x, t, il, tl):
        lp = torch.log_softmax(self.l(x), 2)
        return self.loss(lp, t, il, tl)


c = CTC()
inputs = torch.randn(6, 2, 4), torch.randint(1, 5, (2, 3)), torch.tensor([6, 6]), torch.tensor([3, 2])
expected = c(*inputs).item()
assert abs(poptorch.trainingModel(c)(*inputs).item() - expected) < 1e-4


class Av(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(3, 3)

    def forward(self, x):
        return poptorch.nop(poptorch.set_available_memory(self.l(x), 0.2))


Av_ = Av()
assert torch.allclose(poptorch.inferenceModel(Av_)(xa), Av_(xa), atol=1e-6)
assert not poptorch.isRunningOnIpu()


small = poptorch.inferenceModel(nn.Linear(2, 2))
small(torch.ones(1, 2))
refused(poptorch.Error, "Shape mismatch for input", lambda: small(torch.ones(2, 2)))


class Unknown(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)

    def forward(self, x):
        y = torch.lgamma(self.fc(x))
        return torch.digamma(y)


refused(poptorch.Error, "lgamma", lambda: poptorch.inferenceModel(Unknown())(torch.ones(1, 2)))
refused(AssertionError, "No tensor with name no found.", lambda: small.getAnchoredTensor("no"))


class CPUOp(nn.Module):
    def __init__(self):
        super().__init__()
        self.cpu = poptorch.CPU(self.host, "MyOp")

    def host(self, x):
        return torch.tensor([float(x.sum())]) * 2

    def forward(self, x):
        return self.cpu(x) * 3


refused(poptorch.Error, "MyOp", lambda: poptorch.inferenceModel(CPUOp())(torch.ones(4)))
