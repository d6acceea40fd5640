"""Replica grouping: parameters with a value for each group of replicas, in one module on the host."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")
from torch import nn  # noqa: E402

import ipu_emu.poptorch as poptorch  # noqa: E402

pytestmark = pytest.mark.torch
ORTHOGONAL, CONSECUTIVE = poptorch.CommGroupType.Orthogonal, poptorch.CommGroupType.Consecutive
ONE = poptorch.VariableRetrievalMode.OnePerGroup


class Product(nn.Module):
    """A product with a matrix that a replica sees without the axis of groups."""

    def __init__(self, groups=4):
        super().__init__()
        self.W = nn.Parameter(torch.randn(groups, 3, 2, generator=torch.Generator().manual_seed(0)))

    def forward(self, x):
        y = x @ self.W
        return (y, poptorch.identity_loss(y.square(), "mean")) if self.training else y


def test_four_groups_of_weights_and_two_of_inputs_are_those_of_one_run_on_the_host():
    module, options = Product(), poptorch.Options().replicationFactor(8).inputReplicaGrouping(4, CONSECUTIVE)
    expected = nn.Parameter(module.W.detach().clone())
    model = poptorch.trainingModel(module, options, torch.optim.SGD(module.parameters(), lr=0.01))
    model.W.replicaGrouping(ORTHOGONAL, 2, ONE)
    x = torch.randn(2, 3, generator=torch.Generator().manual_seed(1))
    for _ in range(4):
        expected.grad = None
        loss = (x.repeat_interleave(4, 0)[:, None] @ expected.repeat(2, 1, 1)).square().mean()
        loss.backward()
        _, losses = model(x)
        assert losses.shape == (8,)
        torch.testing.assert_close(losses.sum() / 8, loss.detach(), rtol=1e-6, atol=1e-6)
        with torch.no_grad():
            expected -= 0.01 * expected.grad
    torch.testing.assert_close(module.W.detach(), expected.detach(), rtol=1e-6, atol=1e-6)


def test_inference_uses_the_weights_of_each_group():
    module = Product(2).eval()
    model = poptorch.inferenceModel(module, poptorch.Options().replicationFactor(4))
    model.W.replicaGrouping(CONSECUTIVE, 2, ONE)
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(model(x), (x[:, None] @ module.W.detach().repeat_interleave(2, 0))[:, 0])
    assert module.W.shape == (2, 3, 2)
    with pytest.raises(poptorch.Error, match="on a compiled model"):
        model.W.replicaGrouping(CONSECUTIVE, 2, ONE)
    model.destroy()
    assert not hasattr(module.W, "replicaGrouping")


def test_parameters_without_groups_are_afterwards_as_the_program_made_them():
    module = Product(2).eval()
    model = poptorch.inferenceModel(module, poptorch.Options())
    assert hasattr(model.W, "replicaGrouping")
    model(torch.ones(2, 3))
    assert not vars(module.W)


@pytest.mark.parametrize(
    ("grouping", "error", "text"),
    [
        ((CONSECUTIVE, 1, ONE), poptorch.Error, "should match numGroups: 4"),
        ((CONSECUTIVE, 3, ONE), poptorch.Error, "do not fit the replicas"),
        ((CONSECUTIVE, 2, poptorch.VariableRetrievalMode.AllReplicas), poptorch.Error, "Use OnePerGroup"),
        ((1, 2, ONE), AssertionError, "CommGroupType"),
        ((CONSECUTIVE, "2", ONE), AssertionError, "shards"),
    ],
)
def test_invalid_groupings_are_refused(grouping, error, text):
    model = poptorch.inferenceModel(Product(2).eval(), poptorch.Options().replicationFactor(4))

    def run():
        model.W.replicaGrouping(*grouping)
        model(torch.ones(4, 3))

    with pytest.raises(error, match=text):
        run()
