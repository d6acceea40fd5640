"""Checkpoints, schedulers that change the learning rate, executables in files, and two models that take turns."""

import os
import tempfile

import poptorch
import torch
from torch import nn


class TM(nn.Module):
    def __init__(self):
        super().__init__()
        self.bn = nn.BatchNorm1d(4)
        self.l = nn.Linear(4, 2)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x, y=None):
        o = self.l(self.bn(x))
        return o if y is None else (o, self.loss(o, y))


def make(opt="sgd"):
    torch.manual_seed(0)
    m = TM()
    o = (
        poptorch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
        if opt == "sgd"
        else poptorch.optim.Adam(m.parameters(), lr=0.01)
    )
    return m, o


x = torch.randn(8, 4, generator=torch.Generator().manual_seed(1))
y = torch.randint(0, 2, (8,), generator=torch.Generator().manual_seed(2))
for kind in ("sgd", "adam"):
    m, o = make(kind)
    t = poptorch.trainingModel(m, poptorch.Options(), o)
    for _ in range(3):
        t(x, y)
    d = tempfile.mkdtemp()
    f = os.path.join(d, "c.pt")
    torch.save({"model_state_dict": m.state_dict(), "optim_state_dict": o.state_dict(), "epoch": 3}, f)
    for _ in range(3):
        _, loss = t(x, y)
    want = {k: v.clone() for k, v in m.state_dict().items()}
    c2 = torch.load(f)
    m2, o2 = make(kind)
    m2.load_state_dict(c2["model_state_dict"])
    o2.load_state_dict(c2["optim_state_dict"])
    t2 = poptorch.trainingModel(m2, poptorch.Options(), o2)
    for _ in range(3):
        _, l2 = t2(x, y)
    got = m2.state_dict()
    for k in want:
        assert torch.equal(want[k], got[k]), (kind, k)
    t.destroy()
    t2.destroy()
m, o = make()
s = torch.optim.lr_scheduler.LambdaLR(o, lambda e: 0.5**e)
opts = poptorch.Options()
opts.relaxOptimizerAttributesChecks()
t = poptorch.trainingModel(m, opts, o)
e = TM()
e.load_state_dict(m.state_dict())
eo = torch.optim.SGD(e.parameters(), lr=0.1, momentum=0.9)
es = torch.optim.lr_scheduler.LambdaLR(eo, lambda k: 0.5**k)
for _ in range(6):
    t(x, y)
    s.step()
    t.setOptimizer(o)
    eo.zero_grad()
    _, loss = e(x, y)
    loss.backward()
    eo.step()
    es.step()
for k, v in e.state_dict().items():
    if k != "bn.num_batches_tracked":
        assert torch.allclose(v, m.state_dict()[k], atol=1e-5), k
for S, kw in (
    (torch.optim.lr_scheduler.CosineAnnealingLR, {"T_max": 10}),
    (torch.optim.lr_scheduler.MultiStepLR, {"milestones": [2]}),
    (torch.optim.lr_scheduler.ExponentialLR, {"gamma": 0.9}),
    (torch.optim.lr_scheduler.ReduceLROnPlateau, {}),
    (torch.optim.lr_scheduler.OneCycleLR, {"max_lr": 0.1, "total_steps": 10, "cycle_momentum": False}),
    (torch.optim.lr_scheduler.CyclicLR, {"base_lr": 0.01, "max_lr": 0.1, "cycle_momentum": False}),
):
    m, o = make()
    sch = S(o, **kw)
    t = poptorch.trainingModel(m, opts, o)
    for _ in range(3):
        _, loss = t(x, y)
        sch.step(loss) if S is torch.optim.lr_scheduler.ReduceLROnPlateau else sch.step()
        t.setOptimizer(o)
m, o = make()
t = poptorch.trainingModel(m, poptorch.Options(), o)
i = poptorch.inferenceModel(m, poptorch.Options())
for _ep in range(2):
    m.train()
    t(x, y)
    t.detachFromDevice()
    m.eval()
    out = i(x)
    i.detachFromDevice()
    t.attachToDevice()
d = tempfile.mkdtemp()
t.save(d + "/m.poptorch")
r = poptorch.load(d + "/m.poptorch")
r(x, y)
oo = poptorch.Options().useOfflineIpuTarget()
k = poptorch.inferenceModel(TM(), oo)
k.compileAndExport(d + "/exe.poptorch", x)
q = poptorch.load(d + "/exe.poptorch")
assert q(x).shape == (8, 2)
z = poptorch.inferenceModel(TM())
z.loadExecutable(d + "/exe.poptorch")
assert z(x).shape == (8, 2)
