"""Host collectives between 1, 2 and 4 processes; the results of each instance come back as JSON."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.mpi_jobs import PROGRAMS, run_job

#: Every instance makes these calls and prints the results, arrays as [dtype, shape, values].
PROGRAM = PROGRAMS / "popdist_py/collectives.py"


@pytest.fixture(scope="module", params=[1, 2, 4], ids="{} instances".format)
def said(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The output of every instance of such a job."""
    folder: Path = tmp_path_factory.mktemp("job")
    ended = run_job(PROGRAM, folder, counts=(1,) * request.param).succeeded()
    return [json.loads(text) for text in ended.out]


def common(said: list[dict[str, Any]], what: str) -> Any:
    """The output that all instances have in common."""
    assert all(words[what] == said[0][what] for words in said), [words[what] for words in said]
    return said[0][what]


def array(shown: list[Any]) -> np.ndarray:
    dtype, shape, values = shown
    return np.array(values, dtype).reshape(shape)


TENSOR = np.array([[1, 2, 3], [4, 5, 6]], np.int32)


@pytest.mark.parametrize(
    ("op", "combine"), [("sum", np.add), ("mul", np.multiply), ("min", np.minimum), ("max", np.maximum)]
)
def test_arrays_are_combined_in_instance_order(said: list[dict[str, Any]], op: str, combine: np.ufunc) -> None:
    expected = np.random.default_rng(0).standard_normal(7).astype(np.float32)
    for instance in range(1, len(said)):
        expected = combine(expected, np.random.default_rng(instance).standard_normal(7).astype(np.float32))
    combined = array(common(said, "float32")[op])
    assert combined.dtype == np.float32
    np.testing.assert_array_equal(combined, expected)


def test_the_mean_is_the_sum_divided(said: list[dict[str, Any]]) -> None:
    float32 = common(said, "float32")
    np.testing.assert_array_equal(array(float32["mean"]), array(float32["sum"]) / np.float32(len(said)))


def test_half_is_summed_in_float32_and_rounded_once(said: list[dict[str, Any]]) -> None:
    dtype, _, values = common(said, "float16")
    ones = len(said) - 1
    assert (dtype, values) == ("<f2", [float(np.float16(2048 + ones)), 1.0 + ones])


def test_integers_remain_integers_except_in_the_mean(said: list[dict[str, Any]]) -> None:
    n = len(said)
    assert common(said, "int sum") == ["<i4", [2, 3], (TENSOR * (n * (n + 1) // 2)).ravel().tolist()]
    assert common(said, "int mean") == ["<f8", [2, 3], (TENSOR * (n + 1) / 2).ravel().tolist()]


def test_numbers_give_numbers(said: list[dict[str, Any]]) -> None:
    assert common(said, "number") == ["<f8", [], [sum(instance + 0.5 for instance in range(len(said)))]]
    assert common(said, "gathered number")[1:] == [[len(said)], list(range(len(said)))]


def test_gathering_stacks_in_instance_order(said: list[dict[str, Any]]) -> None:
    expected = np.stack([TENSOR * (instance + 1) for instance in range(len(said))])
    np.testing.assert_array_equal(array(common(said, "gathered")), expected)
    np.testing.assert_array_equal(array(common(said, "transposed")), expected.transpose(0, 2, 1))


def test_empty_arrays_keep_their_shape(said: list[dict[str, Any]]) -> None:
    assert common(said, "empty") == ["<f4", [len(said), 0, 3], []]
    assert common(said, "empty sum") == ["<f2", [2, 0], []]


def test_broadcasting_arrays_and_plain_data(said: list[dict[str, Any]]) -> None:
    np.testing.assert_array_equal(array(common(said, "array of 0")), TENSOR)
    np.testing.assert_array_equal(array(common(said, "array of last")), TENSOR * len(said))
    assert common(said, "scalar") == ["<f2", [], [0.0]]
    assert common(said, "plain") == {"epoch": 0, "3": [None, True, 2.5, "ü"], "bytes?": []}
    assert common(said, "nothing") is None
    assert common(said, "large") == (1 << 20) * ((1 << 20) - 1) // 2


@pytest.mark.parametrize(
    ("what", "mine", "theirs"),
    [
        ("shape", "allReduce(sum) with float64 [3]", "allReduce(sum) with float64 [4]"),
        ("dtype", "allGather with float64 [3]", "allGather with float32 [3]"),
        ("operator", "allReduce(min) with float64 []", "allReduce(max) with float64 []"),
        ("call", "allGather with float64 []", "allReduce(sum) with float64 []"),
        ("barrier", "allGather with float64 []", "synchronize()"),
    ],
)
def test_calls_that_differ_are_an_error_everywhere(
    said: list[dict[str, Any]], what: str, mine: str, theirs: str
) -> None:
    if len(said) == 1:
        pytest.skip("one instance agrees with itself")
    for instance, words in enumerate(said):
        assert words[what].startswith("BackendError: Tensor layouts did not match on all instances: this one called ")
        here, there = (theirs, mine) if instance else (mine, theirs)
        assert f"this one called {here}, instance {0 if instance else 1} called {there};" in words[what]


def test_a_value_that_cannot_be_exchanged_is_an_error(said: list[dict[str, Any]]) -> None:
    assert "BackendError" in common(said, "object")
    assert "dtype object" in common(said, "object")
    assert "BackendError" in common(said, "text")
    assert common(said, "unknown operator").startswith("BackendError: unknown operator 'median'; use one of add, max")
    assert common(said, "unknown root").startswith(f"BackendError: root {len(said)} is not an instance; use 0 to")


def test_an_error_leaves_the_instances_in_step(said: list[dict[str, Any]]) -> None:
    assert common(said, "after all that") == list(range(len(said)))
