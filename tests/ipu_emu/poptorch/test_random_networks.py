"""Random networks: one training step of networks drawn at random, compared with PyTorch in float64."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="compares with PyTorch")
poptorch = pytest.importorskip("ipu_emu.poptorch", reason="compares with PyTorch")
functional = torch.nn.functional

#: A step of a network: its function of the value so far and of its weights, and the shapes of the weights.
Step = tuple[Callable[..., Any], Sequence[tuple[int, ...]]]
Shape = tuple[int, ...]

SIZES = (1, 1, 2, 3, 4, 5, 8, 9, 16, 17)
NETWORKS = 60  # of one test; 15 ms each


def pointwise(random: Random, shape: Shape) -> Step:
    names = ("gelu", "hardswish", "relu", "sigmoid", "silu", "softplus", "tanh")
    return getattr(functional, random.choice(names)), ()


def repeated_operand(random: Random, shape: Shape) -> Step:
    """An operand that repeats along some axes, and has fewer of them."""
    operand = [size if random.random() < 0.6 else 1 for size in shape]
    function = random.choice([torch.add, torch.sub, torch.mul, lambda x, w: x / (w * w + 1)])
    return function, [tuple(operand[random.randint(0, len(shape) - 1) :])]


def gate(random: Random, shape: Shape) -> Step | None:
    """Squeeze and excitation."""

    def function(x: Any, w: Any) -> Any:
        return x * torch.sigmoid(functional.conv2d(x.mean((2, 3), keepdim=True), w))

    return (function, [(shape[1], shape[1], 1, 1)]) if len(shape) == 4 else None


def convolution(random: Random, shape: Shape) -> Step | None:
    if len(shape) < 4:
        return None
    channels = shape[1]
    groups = random.choice([1, channels, *(k for k in (2, 4) if channels % k == 0)])
    kernel = random.choice([(1, 1), (3, 3), (1, 5), (7, 7), (2, 3)])
    attributes = {
        "stride": random.choice([1, 1, 2, (1, 2), (3, 1)]),
        "padding": tuple(random.randint(0, size) for size in kernel),
        "dilation": random.choice([1, 1, 2]),
        "groups": groups,
    }
    channels_out = groups * random.choice([1, 2, 5])
    return lambda x, w: functional.conv2d(x, w, **attributes), [(channels_out, channels // groups, *kernel)]


def pooling(random: Random, shape: Shape) -> Step | None:
    if len(shape) < 4:
        return None
    kernel = (random.randint(1, 3), random.randint(1, 3))
    function = random.choice([functional.max_pool2d, functional.avg_pool2d])
    stride, padding = random.choice([1, 2, (1, 2), 3]), tuple(size // 2 for size in kernel)
    return lambda x: function(x, kernel, stride, padding), ()


def product(random: Random, shape: Shape) -> Step:
    if random.random() < 0.3 and len(shape) > 1:
        return lambda x: x @ x.transpose(-1, -2) / shape[-1], ()
    return functional.linear, [(random.choice(SIZES), shape[-1])]


def normalisation(random: Random, shape: Shape) -> Step | None:
    axis = random.randrange(len(shape))
    softmax = random.choice([functional.softmax, functional.log_softmax])
    if random.random() < 0.5:
        return lambda x: softmax(x, axis), ()
    return (lambda x: functional.layer_norm(x, x.shape[-1:]), ()) if shape[-1] > 2 else None


def reduction(random: Random, shape: Shape) -> Step:
    axes = tuple(sorted(random.sample(range(len(shape)), random.randint(1, len(shape) - 1 or 1))))
    name, keeps_dims = random.choice(["sum", "mean"]), len(axes) == len(shape) or random.random() < 0.7
    return lambda x: getattr(x, name)(axes, keepdim=keeps_dims), ()


def movement(random: Random, shape: Shape) -> Step:
    axis, order = random.randrange(len(shape)), random.sample(range(len(shape)), len(shape))
    first = random.randrange(shape[axis])
    picked = torch.tensor([random.randrange(shape[axis]) for _ in range(random.randint(1, 5))])
    functions = [
        lambda x: x.permute(order),
        lambda x: x.narrow(axis, first, shape[axis] - first),
        lambda x: x.index_select(axis, picked),
        lambda x: torch.cat([x, 2 * x], axis),
        lambda x: x.flatten(max(0, len(shape) - 2)),
        lambda x: functional.pad(x, (1, 2)),
    ]
    return random.choice(functions), ()


KINDS = (
    *(pointwise, repeated_operand, repeated_operand, gate, convolution, convolution, pooling, product),
    *(normalisation, reduction, movement, movement),
)


class Network(torch.nn.Module):
    """``steps`` in turn, and a loss that gives each element of the result another gradient."""

    def __init__(self, steps: Sequence[Callable[..., Any]], weights: Sequence[Sequence[Any]]) -> None:
        super().__init__()
        self.steps = steps
        self.weights = torch.nn.ModuleList(torch.nn.ParameterList(of_step) for of_step in weights)

    def forward(self, x: Any) -> Any:
        for step, weights in zip(self.steps, self.weights, strict=True):
            x = step(x, *weights)
        factors = torch.cos(torch.arange(x.numel(), dtype=x.dtype)).reshape(x.shape)
        return x, poptorch.identity_loss((x * factors).mean(), reduction="none")


def drawn(seed: int) -> tuple[Network, Any]:
    """A network and its input; steps that PyTorch refuses for their shapes are left out."""
    random = Random(seed)
    torch.manual_seed(seed)
    x = torch.randn([random.choice(SIZES) for _ in range(random.choice([2, 3, 4, 4]))])
    value, steps, weights = x, [], []
    for kind in random.choices(KINDS, k=random.randint(2, 6)):
        step = kind(random, tuple(value.shape)) if value.ndim else None
        if step is None:
            continue
        weights_of_step = [0.4 * torch.randn(shape) + 0.2 for shape in step[1]]
        try:
            result = step[0](value, *weights_of_step)
        except RuntimeError:
            continue
        if 0 < result.numel() < 20_000:
            value = result
            steps.append(step[0])
            weights.append(weights_of_step)
    steps.append(functional.linear)  # at least one weight is trained
    weights.append([torch.randn(3, value.shape[-1] if value.ndim else 1)])
    if not value.ndim:
        steps[-1:] = [lambda x, w: x * w]
    return Network(steps, weights), x


def compare(seed: int) -> None:
    network, x = drawn(seed)
    expected = copy.deepcopy(network).double()
    y, loss = expected(x.double())
    loss.backward()
    model = poptorch.trainingModel(network, poptorch.Options(), poptorch.optim.SGD(network.parameters(), lr=0.1))
    output, _ = model(x)
    model.copyWeightsToHost()
    model.destroy()
    torch.testing.assert_close(output.double(), y.detach(), rtol=1e-4, atol=1e-4, msg=lambda said: f"{seed}: {said}")
    for trained, weight in zip(network.parameters(), expected.parameters(), strict=True):
        updated = weight.detach() - 0.1 * (torch.zeros_like(weight) if weight.grad is None else weight.grad)
        torch.testing.assert_close(
            trained.detach().double(), updated, rtol=1e-4, atol=1e-4, msg=lambda said: f"{seed}: {said}"
        )


@pytest.mark.torch
@pytest.mark.parametrize(
    "first", [0, *(pytest.param(k * NETWORKS, marks=pytest.mark.full) for k in range(1, 50))], ids="from_{}".format
)
def test_a_step_of_random_networks_equals_pytorch(first: int) -> None:
    for seed in range(first, first + NETWORKS):
        compare(seed)
