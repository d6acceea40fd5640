"""Means over targets: a batch of several micro-batches trains as a whole batch, or is refused."""

import itertools

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import ipu_emu.torch  # noqa: E402
from tests.ipu_emu.torch.test_data_of_instances import run  # noqa: E402

pytestmark = pytest.mark.torch

X = torch.randn(8, 5, generator=torch.Generator().manual_seed(1))
UNEVEN = torch.tensor([0, -100, -100, -100, 1, 2, 3, 0])
EVEN = torch.tensor([0, -100, 1, -100, 1, -100, 3, -100])
WEIGHT = torch.tensor([1.0, 2.0, 3.0, 4.0])


class WithLoss(nn.Module):
    def __init__(self, loss):
        super().__init__()
        self.linear, self.loss = nn.Linear(5, 4), loss

    def forward(self, x, labels):
        return self.loss(self.linear(x), labels)


def trained(loss, target, *, inside=False, **settings):
    torch.manual_seed(0)
    module = WithLoss(loss) if inside else nn.Linear(5, 4)
    sgd = torch.optim.SGD(module.parameters(), 0.1)
    settings = {"batch_size": 8, "shuffle": False, "progress": False} | settings
    ipu_emu.torch.train(module, None if inside else loss, sgd, (X, target), **settings)
    return (module.linear if inside else module).weight.detach().clone()


OWN = [lambda y, t: F.cross_entropy(y, t) * 1, lambda y, t: F.nll_loss(F.log_softmax(y, 1), t)]
SPREADS = [{"accumulation": 2}, {"replicas": 2}, {"accumulation": 2, "replicas": 2}]


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), nn.CrossEntropyLoss(WEIGHT), F.cross_entropy])
@pytest.mark.parametrize("spread", SPREADS)
def test_pytorch_s_own_losses_are_counted_over_the_batch(loss, spread):
    torch.testing.assert_close(trained(loss, UNEVEN, **spread), trained(loss, UNEVEN), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("loss", "inside"), [*itertools.product(OWN, (False, True))])
def test_other_losses_are_refused_where_targets_would_count_unequally(loss, inside):
    trained(loss, UNEVEN, inside=inside)
    for spread in SPREADS:
        with pytest.raises(ValueError, match=r"3 targets.*-100.*CrossEntropyLoss"):
            trained(loss, UNEVEN, inside=inside, **spread)
    torch.testing.assert_close(
        trained(loss, EVEN, inside=inside, accumulation=2), trained(loss, EVEN, inside=inside), rtol=1e-5, atol=1e-6
    )


def test_weights_of_classes_in_other_losses_are_refused():
    with pytest.raises(ValueError, match=r"the loss weights classes: .*CrossEntropyLoss"):
        trained(lambda y, t: F.cross_entropy(y, t, weight=WEIGHT), EVEN.clamp(0), accumulation=2)


def test_a_counted_loss_is_the_same_over_two_instances():
    (alone,) = run("ipu_emu/counted_training.py", 1)
    assert run("ipu_emu/counted_training.py", 2) == [alone, alone]
    torch.manual_seed(0)
    module = nn.Linear(5, 4)
    sgd = torch.optim.SGD(module.parameters(), 0.1)
    F.cross_entropy(module(X), UNEVEN).backward()
    sgd.step()
    torch.testing.assert_close(
        torch.tensor([float(value) for value in alone[1:]]), module.bias.detach(), rtol=1e-5, atol=1e-6
    )
