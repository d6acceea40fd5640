"""Training and inference of modules, compared with eager PyTorch."""

import copy
import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import ipu_emu.poptorch as poptorch  # noqa: E402

pytestmark = pytest.mark.torch


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.out = nn.Linear(8 * 16, 10)

    def forward(self, x, target=None):
        y = self.out(F.max_pool2d(F.relu(self.norm(self.conv(x))), 2).flatten(1))
        return y if target is None else (y, F.cross_entropy(y, target))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))

    def forward(self, x, target):
        y = self.layers(x)
        return y, F.mse_loss(y, target)


OPTIMISERS = {
    "SGD": lambda p: torch.optim.SGD(p, 0.1),
    "momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
    "Adam": lambda p: torch.optim.Adam(p, 1e-3, weight_decay=0.01),
    "AdamW": lambda p: torch.optim.AdamW(p, 1e-3),
    "RMSprop": lambda p: torch.optim.RMSprop(p, 1e-3, momentum=0.5),
    "centred": lambda p: torch.optim.RMSprop(p, 1e-3, centered=True),
}


@pytest.mark.parametrize("name", OPTIMISERS)
def test_weights_statistics_and_losses_equal_eager_pytorch(name):
    torch.manual_seed(1)
    module = Net()
    other = copy.deepcopy(module)
    model = poptorch.trainingModel(module, optimizer=OPTIMISERS[name](module.parameters()))
    optimiser = OPTIMISERS[name](other.parameters())
    for _ in range(20):
        x, target = torch.randn(4, 3, 8, 8), torch.randint(0, 10, (4,))
        _, loss = model(x, target)
        optimiser.zero_grad()
        expected = other(x, target)[1]
        expected.backward()
        optimiser.step()
        torch.testing.assert_close(loss, expected.detach(), rtol=1e-5, atol=1e-5)
    for (id, mine), theirs in zip(module.state_dict().items(), other.state_dict().values(), strict=True):
        if "num_batches" not in id:
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=2e-5)
    inference = poptorch.inferenceModel(module.eval(), poptorch.Options().deviceIterations(2))
    x = torch.randn(8, 3, 8, 8)
    torch.testing.assert_close(inference(x), other.eval()(x).detach(), rtol=1e-3, atol=1e-4)


def test_host_state_is_as_before_after_compiling():
    module = Net()
    before = copy.deepcopy(module.state_dict())
    state = torch.get_rng_state()
    poptorch.trainingModel(module).compile(torch.randn(2, 3, 8, 8), torch.tensor([1, 2]))
    assert torch.equal(torch.get_rng_state(), state) is False  # the inputs were drawn
    for id, value in module.state_dict().items():
        assert torch.equal(value, before[id]), id


def options(iterations=1, accumulation=1, replicas=1):
    chosen = poptorch.Options().deviceIterations(iterations).replicationFactor(replicas)
    chosen.Training.gradientAccumulation(accumulation)
    return chosen


def trained(opts, *, lr=0.1):
    torch.manual_seed(0)
    module = Mlp()
    x, target = torch.randn(48, 6), torch.randn(48, 4)
    model = poptorch.trainingModel(module, opts, torch.optim.SGD(module.parameters(), lr, momentum=0.9))
    batch = opts.batches * 2
    for start in range(0, 48, batch):
        model(x[start : start + batch], target[start : start + batch])
    return module.state_dict()


def test_regrouping_of_iterations_changes_no_bit():
    single, several = trained(options(1, 4)), trained(options(3, 4))
    assert all(torch.equal(single[id], several[id]) for id in single)


def test_accumulation_and_replicas_take_the_mean():
    torch.manual_seed(0)
    module = Mlp()
    other = copy.deepcopy(module)
    x, target = torch.randn(8, 6), torch.randn(8, 4)
    model = poptorch.trainingModel(module, options(1, 2, 2), torch.optim.SGD(module.parameters(), 0.5))
    y, loss = model(x, target)
    assert y.shape == (4, 4)
    assert loss.shape == (2,)
    expected = other(x, target)[1]
    expected.backward()
    for mine, theirs in zip(module.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine.detach(), theirs.detach() - 0.5 * theirs.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("mode", "period", "shapes"),
    [("All", None, [(1000, 10), (1000,)]), ("EveryN", 20, [(50, 10), (50,)]), ("Final", None, [(1, 10), ()])],
)
def test_output_modes_of_training(mode, period, shapes):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 10)

        def forward(self, x):
            y = self.fc(x)
            return y, poptorch.identity_loss(y, "mean")

    opts = options(1000).outputMode(poptorch.OutputMode[mode], period)
    y, loss = poptorch.trainingModel(Model(), opts)(torch.randn(1000, 4))
    assert [tuple(y.shape), tuple(loss.shape)] == shapes


def test_frozen_tied_and_unused_parameters():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(7, 5, padding_idx=0)
            self.head, self.frozen, self.unused = nn.Linear(5, 7, bias=False), nn.Linear(5, 5), nn.Linear(2, 2)
            self.head.weight = self.table.weight
            self.frozen.requires_grad_(False)

        def forward(self, ids, target):
            return F.cross_entropy(self.head(self.frozen(self.table(ids))), target)

    torch.manual_seed(0)
    module = Model()
    other = copy.deepcopy(module)
    model = poptorch.trainingModel(module, optimizer=torch.optim.Adam(module.parameters(), 0.01))
    optimiser = torch.optim.Adam(other.parameters(), 0.01)
    for _ in range(5):
        ids, target = torch.randint(0, 7, (6,)), torch.randint(0, 7, (6,))
        loss = model(ids, target)
        optimiser.zero_grad()
        expected = other(ids, target)
        expected.backward()
        optimiser.step()
        torch.testing.assert_close(loss, expected.detach(), rtol=1e-5, atol=1e-5)
    for mine, theirs in zip(module.state_dict().values(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)
    assert module.head.weight is module.table.weight


def test_all_unknown_ops_are_named_at_once_with_module_and_line():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, x):
            return self.inner(x)

    class Inner(nn.Module):
        def forward(self, x):
            return torch.lgamma(x) + torch.digamma(x)

    with pytest.raises(poptorch.Error, match=r"aten::digamma.*module 'inner'.*test_training.py:\d+.*aten::lgamma"):
        poptorch.inferenceModel(Model())(torch.rand(2, 3))


def test_a_model_without_a_loss_or_with_two_is_refused():
    class Model(nn.Module):
        def __init__(self, count):
            super().__init__()
            self.fc, self.count = nn.Linear(2, 2), count

        def forward(self, x):
            return [F.mse_loss(self.fc(x), x) for _ in range(self.count)] or self.fc(x)

    with pytest.raises(poptorch.Error, match="Couldn't find a loss in graph"):
        poptorch.trainingModel(Model(0))(torch.rand(1, 2))
    with pytest.raises(poptorch.Error, match="Multiple independent losses"):
        poptorch.trainingModel(Model(2))(torch.rand(1, 2))


@pytest.mark.parametrize("wrapped", [False, True])
def test_what_is_computed_from_the_loss_is_trained_if_it_is_marked_and_said_if_not(wrapped):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(2, 2, bias=False)

        def forward(self, x):
            loss = F.mse_loss(self.fc(x), x, reduction="none").sum(1).mean() * 0.5
            return poptorch.identity_loss(loss, "none") if wrapped else loss

    module, x = Model(), torch.rand(4, 2)
    (gradient,) = torch.autograd.grad(module(x), module.fc.weight)
    expected = module.fc.weight.detach() - 0.1 * gradient * (
        1 if wrapped else 8
    )  # without a mark the sum is the loss
    model = poptorch.trainingModel(module, optimizer=torch.optim.SGD(module.parameters(), 0.1))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model(x)
    assert [str(warning.message) for warning in said if "identity_loss" in str(warning.message)][1:] == []
    assert any("wrap that in poptorch.identity_loss" in str(warning.message) for warning in said) is not wrapped
    torch.testing.assert_close(module.fc.weight.detach(), expected)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "LAMB"])
def test_clipping_and_lamb_equal_their_steps_on_the_host(name):
    torch.manual_seed(3)
    module = Mlp()
    other = copy.deepcopy(module)
    clips = name != "LAMB"
    more = {"max_grad_norm": 0.3} if clips else {"weight_decay": 0.1, "max_weight_norm": 2.0}
    kind = getattr(poptorch.optim, name)
    model = poptorch.trainingModel(module, optimizer=kind(module.parameters(), lr=0.02, **more))
    rest = {} if clips else more
    host = (getattr(torch.optim, name) if clips else kind)(other.parameters(), lr=0.02, **rest)
    for _ in range(20):
        x, target = torch.randn(4, 6), torch.randn(4, 4)
        _, loss = model(x, target)
        host.zero_grad()
        expected = other(x, target)[1]
        expected.backward()
        if clips:
            nn.utils.clip_grad_norm_(other.parameters(), 0.3)
        host.step()
        torch.testing.assert_close(loss, expected.detach(), rtol=1e-5, atol=1e-5)
    for mine, theirs in zip(module.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine.detach(), theirs.detach(), rtol=1e-5, atol=1e-5)
