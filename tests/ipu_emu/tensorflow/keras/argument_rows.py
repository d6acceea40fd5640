"""Rows of inventories of arguments: the parameters of signatures, values off their defaults, and comparisons."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

#: A row: arguments with one off its default, and those without it if it needs others.
Row = tuple[dict[str, Any], ...]


def parameters(function: Callable[..., Any]) -> list[str]:
    """The names of the parameters that a caller can give."""
    every = inspect.signature(function).parameters.values()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [parameter.name for parameter in every if parameter.kind in named and parameter.name != "self"]


def rows_of(values: dict[str, Any], names: Sequence[str]) -> dict[str, Row]:
    return {
        name: value if isinstance(value, tuple) and isinstance(value[0], dict) else ({name: value},)
        for name, value in only(values, names).items()
    }


def assert_rows(
    both: Any, rows: dict[str, Row], equal: dict[str, Any], outcomes: Callable[[list[dict[str, Any]]], list[Any]]
) -> None:
    """Compare the outcome of each row with that of plain Keras, where it differs from the outcome without it."""
    pairs = [({},), *rows.values(), *(({name: value},) for name, value in equal.items())]
    expected, actual = both(lambda: outcomes([arguments for pair in pairs for arguments in pair]))
    assert len(expected) == len(actual)
    theirs, ours = iter(expected), iter(actual)
    (plain,) = expected[:1]
    for name, pair in zip(("", *rows, *equal), pairs, strict=True):
        results = [next(theirs) for _ in pair]
        for result, other in zip(results, ours, strict=False):
            assert is_same(other, result), (name, other, result)
        if name:
            assert is_same(results[0], (*results[1:], plain)[0]) == (name in equal), name


def is_same(result: Sequence[Any], other: Sequence[Any]) -> bool:
    shapes = [np.shape(array) for array in result] == [np.shape(array) for array in other]
    return shapes and all(np.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(result, other, strict=True))


def only(values: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in names}
