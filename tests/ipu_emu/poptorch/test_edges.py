"""Edges of ATen ops: values and gradients of every rule of the table, compared with eager PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")

import ipu_emu.poptorch as poptorch  # noqa: E402
from ipu_emu.poptorch.aten.random import RULES as RANDOM_RULES  # noqa: E402
from ipu_emu.poptorch.aten.table import RULES  # noqa: E402
from ipu_emu.poptorch.tracing import recorder  # noqa: E402
from ipu_emu.poptorch.tracing.trace import trace_module  # noqa: E402
from tests.ipu_emu.helpers.argument_cases import arguments  # noqa: E402
from tests.ipu_emu.helpers.edge_cases import FAMILIES, Case  # noqa: E402

pytestmark = pytest.mark.torch

#: The names of PyTorch's ops.
OPS = frozenset(torch._C._dispatch_get_all_op_names())

#: Ops with results of data-dependent sizes, which are refused, and ops that PopTorch adds.
ELSEWHERE = {"masked_select", "nonzero", "unique", "_unique2", "ctc_beam_search", "print_tensor"}


def tensors_in(result: Any) -> list[Any]:
    if isinstance(result, torch.Tensor):
        return [result]
    return [tensor for part in result for tensor in tensors_in(part)] if isinstance(result, tuple | list) else []


def total(results: list[Any]) -> Any:
    """The sum of all results that have gradients, with different factors."""
    followed = [x.float() for x in results if x.is_floating_point() and x.requires_grad and x.numel()]
    parts = [(x * torch.linspace(0.5, 1.5, x.numel()).view(x.shape)).sum() for x in followed]
    return torch.stack(parts).sum() if parts else None


class Calls(torch.nn.Module):
    """The functions of cases; to each floating-point input a parameter of -0.0 is added, which changes no bit."""

    def __init__(self, cases: list[Case]) -> None:
        super().__init__()
        self.cases = cases
        self.inputs = [x for _, _, xs in cases for x in xs]
        self.shifts = torch.nn.ParameterList(torch.full_like(x, -0.0) for x in self.inputs if x.is_floating_point())

    def forward(self, *inputs: Any) -> Any:
        shifts = iter(self.shifts)
        moved = iter([x + next(shifts) if x.is_floating_point() else x for x in inputs])
        results = [tensors_in(function(*(next(moved) for _ in xs))) for _, function, xs in self.cases]
        losses = [loss for loss in map(total, results) if loss is not None]
        return [*(x for part in results for x in part), poptorch.identity_loss(torch.stack(losses).sum(), "sum")]

    def places(self) -> tuple[list[str], list[str]]:
        """The names of the results and of the gradients."""
        results = [name for name, function, xs in self.cases for _ in tensors_in(function(*(x.clone() for x in xs)))]
        return results, [f"gradient of {name}" for name, _, xs in self.cases for x in xs if x.is_floating_point()]


def on_device(calls: Calls) -> list[Any]:
    """The results and the gradients of the shifts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = poptorch.trainingModel(calls, optimizer=torch.optim.SGD(calls.parameters(), lr=1.0))
        results = model(*(x.clone() for x in calls.inputs))[:-1]
    gradients = [-shift.detach() for shift in calls.shifts]
    model.destroy()
    return [*results, *gradients]


def eagerly(calls: Calls) -> list[Any]:
    results = calls(*(x.clone() for x in calls.inputs))
    results[-1].backward()
    return [*results[:-1], *(torch.zeros_like(x) if x.grad is None else x.grad.to_dense() for x in calls.shifts)]


def difference(tensor: Any, expected: Any) -> str:
    """The first elements that differ by more than rounding, in the units of the largest usual element."""
    if tuple(tensor.shape) != tuple(expected.shape):
        return f"shape {list(tensor.shape)}, expected {list(expected.shape)}"
    a, b = tensor.detach().double().reshape(-1), expected.detach().double().reshape(-1)
    half, exact = expected.dtype is torch.float16, not expected.is_floating_point()
    usual = b[b.abs() < 1e4].abs().max().item() if (b.abs() < 1e4).any() else 0.0
    error = 0.0 if exact else 5e-3 if half else 1e-4
    wrong = ~torch.isclose(a, b, rtol=error, atol=error * usual * 0.2, equal_nan=True)
    return f"{a[wrong][:4].tolist()}, expected {b[wrong][:4].tolist()}" if wrong.any() else ""


class Log(dict[str, Any]):
    """A table that remembers the names that were looked up."""

    def __init__(self, table: Any) -> None:
        super().__init__(table)
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, default)


@pytest.fixture(scope="module")
def looked_up() -> dict[str, set[str]]:
    """The names of the rules that the cases of a family need, once it was traced."""
    return {}


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    """The table of rules that traces use."""
    log = Log(RULES)
    monkeypatch.setattr(recorder, "RULES", log)
    return log


@pytest.mark.parametrize("family", [*FAMILIES.values(), arguments], ids=lambda family: family.__name__)
def test_values_and_gradients_equal_pytorch(
    family: Callable[[], Iterator[Case]], log: Log, looked_up: dict[str, set[str]]
) -> None:
    calls = Calls(list(family()))
    expected, names = eagerly(calls), [name for part in calls.places() for name in part]
    pairs = zip(names, on_device(calls), expected, strict=True)
    looked_up[family.__name__] = log.names
    differing = [f"{name}: {text}" for name, tensor, right in pairs if (text := difference(tensor, right))]
    assert not differing, "\n" + "\n".join(differing)


class Beside(torch.nn.Module):
    """A half-precision product by a number per row, and a batch normalisation, multiplied by one constant."""

    def forward(self, x: Any, half: Any) -> Any:
        factors = torch.linspace(0.5, 1.5, 12).view(3, 4)
        scaled = half * half.mean(1, keepdim=True)
        normal = torch.nn.functional.batch_norm(x, None, None, training=True)
        return scaled, normal * factors + scaled.float() * factors


def test_conversions_keep_numbers_of_rows_beside_a_batch_normalisation() -> None:
    half = torch.arange(12.0).view(3, 4).half()
    outputs, expected = poptorch.inferenceModel(Beside())(half.float(), half), Beside()(half.float(), half)
    for output, other in zip(outputs, expected, strict=True):
        torch.testing.assert_close(output, other, rtol=2e-3, atol=2e-3)


def test_every_rule_has_a_case(log: Log, looked_up: dict[str, set[str]]) -> None:
    for family in FAMILIES.values():
        if family.__name__ not in looked_up:
            calls = Calls(list(family()))
            trace_module(calls, calls.inputs, lambda xs, calls=calls: calls(*xs), training=True)
    names = log.names.union(*(looked_up.get(family.__name__, set()) for family in FAMILIES.values()))
    assert {name for name in set(RULES) - names - set(RANDOM_RULES) if not is_composite(name)} == ELSEWHERE


def is_composite(name: str) -> bool:
    """Whether PyTorch makes a function, with each of its overloads, of other ops before a trace sees it."""
    overloads = [op for op in OPS if op.partition(".")[0] == f"aten::{name}"]
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return any(has_kernel(op, "CompositeImplicitAutograd") for op in overloads)
