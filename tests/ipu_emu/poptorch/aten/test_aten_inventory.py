"""Inventory of the arguments of ATen ops: each changes the results, as in PyTorch, or is refused by its name.

The rows are PyTorch's: the arguments of every overload of the table's ops that a trace can see. ``test_edges.py``
compares all cases with PyTorch; here each argument is set back to its default, which must change PyTorch's results.
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")

from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import ipu_emu.poptorch as poptorch  # noqa: E402
from ipu_emu.poptorch.aten.table import RULES  # noqa: E402
from tests.helpers.inventory_page import assert_counts  # noqa: E402
from tests.ipu_emu.helpers.argument_cases import DRAWN, FUNCTIONS, LAYERS, REFUSED, arguments  # noqa: E402
from tests.ipu_emu.helpers.edge_cases import FAMILIES, numbers  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

Row = tuple[str, str]
Calling = Callable[[Mapping[str, Any]], Any]

#: Arguments that say where and how the host keeps a tensor; other places than a dense tensor of the CPU are refused.
HOST = {"device", "layout", "memory_format", "non_blocking", "pin_memory"}
#: Arguments that change no value in PyTorch either, or only gradients, which the edge cases compare.
SAME: frozenset[Row] = frozenset({
    ("_index_put_impl", "unsafe"), ("_trilinear", "unroll_dim"), ("_embedding_bag", "sparse"),
    ("_embedding_bag_forward_only", "sparse"), ("embedding", "padding_idx"), ("embedding", "sparse"),
    ("expand", "implicit"), ("gather", "sparse_grad"), ("repeat_interleave", "output_size"), ("topk", "sorted"),
    *((f.__name__, "inplace") for f in FUNCTIONS),
})  # fmt: skip
#: Functions that are recorded as one op, with their schemas.
COMPOSITES = {"one_hot": "", "cosine_similarity": ""}


def schemas() -> Iterator[tuple[str, Any]]:
    """(op of the table, schema of an overload): those that are not made of other ops before a trace sees them."""
    kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    for op in torch._C._dispatch_get_all_op_names():
        name, _, overload = op.partition(".")
        base = without_underscore(name.partition("::")[2])
        if name.startswith("aten::") and base in RULES and not kernel(op, "CompositeImplicitAutograd"):
            yield base, torch._C._get_schema(name, overload)
    for name, overload in COMPOSITES.items():
        yield name, torch._C._get_schema(f"aten::{name}", overload)


def without_underscore(name: str) -> str:
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def rows() -> set[Row]:
    """All arguments; ``out`` is written alike for all ops."""
    of_ops = {(name, a.name) for name, schema in schemas() for a in schema.arguments if not is_out(schema)}
    return of_ops | {(f.__name__, name) for f in FUNCTIONS for name in inspect.signature(f).parameters}


def is_out(schema: Any) -> bool:
    return any(argument.is_out for argument in schema.arguments)


class Arguments:
    """The arguments that calls give off their defaults: ``passed``, and of them those with an ``effect``."""

    def __init__(self) -> None:
        self.passed: set[Row] = set()
        self.effect: set[Row] = set()

    def note(self, name: str, call: Calling, bound: Mapping[str, Any], defaults: Mapping[str, Any]) -> Any:
        """Call an op or a function, and again with each argument, of which no effect is known, at its default."""
        self.effect |= {(name, key) for key in bound if key not in defaults}
        off = [key for key in defaults if not is_default(bound[key], defaults[key])]
        self.passed |= {(name, key) for key in off}
        unknown = [key for key in off if (name, key) not in self.effect]
        if not unknown:
            return call(bound)
        before = {key: copied(value) for key, value in bound.items()}
        result = seeded(call, bound)
        self.effect |= {(name, key) for key in unknown if differs(call, before | {key: defaults[key]}, result)}
        return result


def is_default(value: Any, default: Any) -> bool:
    return value is None or (not isinstance(value, torch.Tensor) and bool(value == default))


def copied(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(map(copied, value))
    return value.detach().clone() if isinstance(value, torch.Tensor) and not value._is_view() else value


def seeded(call: Calling, bound: Mapping[str, Any]) -> Any:
    torch.manual_seed(1)
    return call(bound)


def differs(call: Calling, bound: Mapping[str, Any], result: Any) -> bool:
    try:
        return not equal(result, seeded(call, {key: copied(value) for key, value in bound.items()}))
    except (RuntimeError, TypeError, IndexError, ValueError):  # the default does not fit the other arguments
        return True


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num())
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    return bool(a == b)


class Ops(TorchDispatchMode):
    def __init__(self, seen: Arguments) -> None:
        super().__init__()
        self.seen = seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = without_underscore(func._schema.name.partition("::")[2])
        return self.seen.note(name, by_schema(func, func._schema), *of_schema(func._schema, args, kwargs or {}))


def by_schema(func: Any, schema: Any) -> Calling:
    by_name = {argument.name: argument.kwarg_only for argument in schema.arguments}

    def call(bound: Mapping[str, Any]) -> Any:
        positional = [value for name, value in bound.items() if not by_name[name]]
        return func(*positional, **{name: value for name, value in bound.items() if by_name[name]})

    return call


def of_schema(schema: Any, args: Any, kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(arguments by name, defaults by name)"""
    defaults = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
    names = [argument.name for argument in schema.arguments]
    passed = dict(zip(names, args, strict=False)) | dict(kwargs)
    return {name: passed.get(name, defaults.get(name)) for name in names}, defaults


class Functions(TorchFunctionMode):
    def __init__(self, seen: Arguments) -> None:
        super().__init__()
        self.seen = seen

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if func in FUNCTIONS:
            signature = inspect.signature(func)
            defaults = {p.name: p.default for p in signature.parameters.values() if p.default is not p.empty}
            bound = defaults | signature.bind(*args, **kwargs).arguments
            return self.seen.note(name, lambda bound: func(**bound), bound, defaults)
        if name in COMPOSITES:
            schema = torch._C._get_schema(f"aten::{name}", COMPOSITES[name])
            return self.seen.note(name, by_schema(func, schema), *of_schema(schema, args, kwargs))
        return func(*args, **kwargs)


@cache
def seen() -> Arguments:
    arguments_seen = Arguments()
    cases = [(function, xs) for family in (*FAMILIES.values(), arguments) for _, function, xs in family()]
    cases += [(function, (torch.ones(4096, 1),)) for function in DRAWN.values()]
    for function, xs in cases:
        with Functions(arguments_seen), Ops(arguments_seen):
            function(*(x.clone().requires_grad_(x.is_floating_point()) for x in xs))
    return arguments_seen


def refused() -> set[Row]:
    return {(op, name) for op, *names in REFUSED for name in names} & rows()


def test_every_argument_has_a_row() -> None:
    same = {row for row in rows() if row[1] in HOST} | SAME
    assert rows() - seen().effect - refused() - same == set()
    assert {row for row in SAME - seen().passed if row in rows()} == set(), "these are in no case"
    assert SAME & seen().effect == set(), "these have an effect"
    assert_counts("arguments of ATen ops", len(rows() - refused()), len(refused()), 0)
    recurrent = {*itertools.chain(*LAYERS)} | {"input_size", "hidden_size", "mode", "device", "dtype"}
    assert set(inspect.signature(torch.nn.RNNBase).parameters) == recurrent


class Called(torch.nn.Module):
    """A module that calls functions."""

    def __init__(self, *functions: Callable[..., Any]) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, x: Any) -> Any:
        results = [function(x) for function in self.functions]
        return [y for part in results for y in (part if isinstance(part, tuple) else (part,))]


@pytest.mark.parametrize("row", REFUSED, ids=" ".join)
def test_an_argument_that_is_refused_is_named(row: tuple[str, ...]) -> None:
    call, word = REFUSED[row]
    with pytest.raises(poptorch.Error, match=rf"{row[0]}(?s:.*){re.escape(word)}"):
        poptorch.inferenceModel(Called(call))(numbers(3, 4))


def test_random_numbers_have_the_distributions_of_pytorch() -> None:
    torch.manual_seed(3)
    x, names = torch.ones(4096, 1), []
    for name, function in DRAWN.items():
        names += [name] * (len(y) if isinstance(y := function(x.clone()), tuple) else 1)
    module = Called(*DRAWN.values())
    pairs = zip(names, poptorch.inferenceModel(module)(x), module(x.clone()), strict=True)
    assert [name for name, mine, other in pairs if not alike(mine, other)] == []


def alike(mine: Any, other: Any) -> bool:
    """Whether type and shape are equal, and mean and deviation within seven standard errors."""
    if mine.shape != other.shape or torch.promote_types(mine.dtype, other.dtype) != other.dtype:
        return False
    a, b = mine.double().flatten(), other.double().flatten()
    error = 7 * b.std().item() / 64 + 1e-3 * b.abs().max().item()
    return abs(a.mean() - b.mean()) <= error and abs(a.std() - b.std()) <= 2 * error
