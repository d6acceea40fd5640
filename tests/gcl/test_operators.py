"""Operators by name."""

import pytest

from gcl import ArgumentError, Operator
from gcl.operators import CODES, operator


@pytest.mark.parametrize("name", ["add", "ADD", "Add", Operator.ADD])
def test_names_in_any_letter_case(name: str) -> None:
    assert operator(name) is Operator.ADD


def test_kernels_get_a_number_for_each() -> None:
    assert [CODES[operator(name)] for name in ("add", "mean", "mul", "min", "max")] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("name", ["sum", "", "add "])
def test_an_unknown_one_lists_those_there_are(name: str) -> None:
    with pytest.raises(ArgumentError, match=r"operator .* was asked for; there are add, mean, mul, min, max"):
        operator(name)
