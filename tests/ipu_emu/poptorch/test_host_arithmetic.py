"""Host arithmetic: what forward computes from constants has the bits that the device computes from inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")
from torch.nn import functional as F  # noqa: E402

import ipu_emu.poptorch as poptorch  # noqa: E402

pytestmark = pytest.mark.torch


def in_place(x: Any) -> Any:
    y = x.clone()
    y[1:].sin_().mul_(3)
    return y.exp_()


#: Functions of a matrix with elements from 1/32 to 63/32.
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    **{
        name: getattr(torch, name) for name in ("cos", "erf", "erfc", "exp", "expm1", "log", "log1p", "log2", "rsqrt")
    },
    **{name: getattr(torch, name) for name in ("sigmoid", "sin", "sinh", "sqrt", "tan", "tanh", "var_mean")},
    "pow": lambda x: 10000 ** -(x / 8),
    "powers": lambda x: x**1.7,
    "sum": lambda x: (x.sum(0), x.sum(), x.mean(-1), x.cumsum(1), torch.logsumexp(x, 0)),
    "norm": lambda x: (x.norm(dim=1), x.std(0)),
    "softmax": lambda x: (x.softmax(-1), x.log_softmax(-1)),
    "outer": lambda x: torch.outer(x[0], x[1]).cos(),
    "lerp": lambda x: (torch.lerp(x, x * x, 0.3), torch.add(x, x, alpha=0.3), torch.addcmul(x, x, x, value=0.3)),
    "maxima": lambda x: (x.max(), torch.maximum(x, 2 - x), F.relu(x - 1), x.clamp(0.5, 1.5)),
    "activations": lambda x: (F.gelu(x), F.silu(x), F.mish(x), F.softplus(x)),
    "in place": in_place,
    "views": lambda x: torch.stack(x.t().chunk(3))[1:].exp().flatten(),
    "angles": lambda x: (torch.atan2(x - 1, x), torch.hypot(x, x + 1)),
}


def numbers() -> Any:
    return torch.arange(1, 64).reshape(7, 9) / 32


def flat(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple | list) else [result]


class Both(torch.nn.Module):
    """Every function of the input, and of constants of the same values."""

    def forward(self, x: Any) -> Any:
        constants = numbers().to(x.dtype)
        zero = x[0, 0] * 0
        return {name: (flat(f(x)), [tensor + zero for tensor in flat(f(constants))]) for name, f in FUNCTIONS.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_functions_of_constants_have_the_bits_of_those_of_inputs(dtype: Any) -> None:
    pairs = poptorch.inferenceModel(Both())(numbers().to(dtype))
    assert [name for name, pair in pairs.items() if not all(map(torch.equal, *pair))] == []


class Tails(torch.nn.Module):
    """What float32 does not hold of results in double precision, which are close to ``expected``."""

    def __init__(self, expected: dict[str, list[Any]]) -> None:
        super().__init__()
        self.expected = expected

    def forward(self, x: Any) -> Any:
        exact_values = {name: flat(f(numbers().double())) for name, f in FUNCTIONS.items()}
        return {
            name: [
                (y - exact.float().double()).float() + x
                for y, exact in zip(exact_values[name], expected, strict=True)
            ]
            for name, expected in self.expected.items()
        }


class Ranges(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        spaces = [torch.linspace(-1.1, 0.7, steps) for steps in range(1, 40)]
        return [x + y for y in (*spaces, torch.arange(0, 3, 0.1), torch.arange(5).half(), torch.arange(-2.5, 4))]


def test_ranges_are_close_to_those_of_pytorch() -> None:
    for tensor, expected in zip(poptorch.inferenceModel(Ranges())(torch.zeros(1)), Ranges()(0), strict=True):
        torch.testing.assert_close(tensor, expected.float(), rtol=1e-6, atol=1e-7)


class Others(torch.nn.Module):
    """Constants of types and kinds that graphs do not have, and functions without a rule."""

    def forward(self, x: Any) -> Any:
        y = numbers()
        spectrum = torch.fft.rfft(y) @ torch.eye(5, dtype=torch.complex64)
        shape = (y.to("meta") @ y.to("meta").t()).sin().shape
        return [x + tensor for tensor in (spectrum.exp().abs(), torch.hann_window(9), torch.ones(shape))]


def test_constants_without_an_equivalent_are_those_of_pytorch() -> None:
    for tensor, expected in zip(poptorch.inferenceModel(Others())(torch.zeros(1)), Others()(0), strict=True):
        torch.testing.assert_close(tensor, expected)


def test_constants_in_double_precision_keep_it() -> None:
    expected = {name: flat(f(numbers().double())) for name, f in FUNCTIONS.items()}
    outputs = poptorch.inferenceModel(Tails(expected))(torch.zeros(1))
    for name, results in expected.items():
        for tail, exact in zip(outputs[name], results, strict=True):
            most = 1e-14 * max(float(exact.abs().max()), 1.0)
            assert torch.allclose(tail.double(), exact - exact.float().double(), rtol=1e-6, atol=most), name
