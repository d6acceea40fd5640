"""Operators by name."""

import numpy as np
import pytest

from gcl import ArgumentError, Communicator, Operator, connect


@pytest.fixture
def communicator() -> Communicator:
    return connect(local_replicas=3, segment_bytes=1 << 20)


@pytest.mark.parametrize("name", ["mean", "MEAN", "Mean", Operator.MEAN])
def test_names_in_any_letter_case(name: str, communicator: Communicator) -> None:
    assert communicator.all_reduce(np.array([1, 2, 6], np.float32), name).tolist() == [3, 3, 3]


@pytest.mark.parametrize(("name", "result"), [("add", 9), ("mean", 3), ("mul", 12), ("min", 1), ("max", 6)])
def test_result_of_each_operator_for_1_2_and_6(name: str, result: int, communicator: Communicator) -> None:
    assert communicator.all_reduce(np.array([1, 2, 6], np.float32), name).tolist() == [result] * 3


@pytest.mark.parametrize("name", ["sum", "", "add "])
def test_an_unknown_one_lists_those_there_are(name: str, communicator: Communicator) -> None:
    with pytest.raises(ArgumentError, match=r"add, mean, mul, min, max"):
        communicator.all_reduce(np.array([1, 2, 6], np.float32), name)
