"""The tree in which contributions are combined."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gcl.core.operators import Operator
from gcl.kernels.copies import copy_bytes, zero_bytes
from gcl.reduce.reduction import BLOCK, new_scratch, recipe, reduce_range, subtrees
from tests.gcl.helpers.reference import OPERATORS, draw, same_bits, tree


def reduced(
    nodes: list[np.ndarray],
    op: str,
    *,
    sizes: list[int] | None = None,
    out: np.ndarray | None = None,
    within: tuple[int, int] | None = None,
    divisor: int | None = None,
) -> np.ndarray:
    """``nodes`` combined by the kernel into ``out`` (default: new), elements ``within`` only."""
    out = np.zeros_like(nodes[0]) if out is None else out
    sizes, first, last = sizes or [1] * len(nodes), *(within or (0, out.size))
    how = recipe(Operator(op), tuple(sizes), nodes[0].dtype, out.dtype, divisor or len(nodes))
    addresses = np.array([node.ctypes.data for node in nodes]), np.array([out.ctypes.data])
    reduce_range(how, *addresses, 1, first, last, new_scratch())
    return out


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 16, 33, 64])
def test_any_number_of_contributions_combines_as_the_drawing_says(count: int, op: str, dtype: type) -> None:
    for n in (0, 1, 7, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5):
        data = draw(count, n, dtype)
        with np.errstate(all="ignore"):
            assert same_bits(reduced(list(data), op), tree(data, op)), n


SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 65504.0, -65504.0, 6e-8, -6e-8, 6.1e-5, 1e-4, 1.0, -1.5]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("op", ["add", "mean", "mul"])
def test_infinities_nans_zeros_and_subnormals_in_every_combination(op: str, dtype: type) -> None:
    data = np.array(list(product(SPECIAL, repeat=4)), dtype).T.copy()
    with np.errstate(all="ignore"):
        assert same_bits(reduced(list(data), op), tree(data, op))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("op", "extreme"), [("min", np.minimum), ("max", np.maximum)])
def test_extremes_of_special_values(op: str, extreme: np.ufunc, dtype: type) -> None:
    data = np.array(list(product(SPECIAL, repeat=3)), dtype).T.copy()
    actual, expected = reduced(list(data), op), extreme.reduce(data, axis=0)
    np.testing.assert_array_equal(actual, expected)  # NaN wins; zeros are equal whatever their sign
    assert same_bits(actual[expected != 0], expected[expected != 0])


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_subnormals_are_kept(dtype: type) -> None:
    tiny = np.full(9, np.finfo(dtype).smallest_subnormal, dtype)
    assert same_bits(reduced([tiny, tiny, tiny], "add"), tiny * dtype(3))
    assert same_bits(reduced([-tiny], "mean"), -tiny)


def test_half_sums_are_rounded_once() -> None:
    # 2048 + 1 is not a half, so sums that are rounded on the way never leave 2048
    values = [np.array([x], np.float16) for x in (2048, 1, 1, 1, 1, 1, 1, 1)]
    assert reduced(values, "add")[0] == 2056  # 2055 rounded once, to even
    large = [np.array([60000], np.float16)] * 2
    assert reduced(large, "mean")[0] == 60000  # the sum is beyond half, the mean is not


@given(st.integers(0, 70), st.integers(0, 70))
def test_subtrees_are_the_largest_aligned_blocks_in_order(start: int, length: int) -> None:
    blocks = subtrees(start, start + length)
    assert [index for first, size in blocks for index in range(first, first + size)] == list(
        range(start, start + length)
    )
    for first, size in blocks:
        assert size & (size - 1) == 0
        assert first % size == 0
        twice = first // (2 * size) * 2 * size
        assert not (start <= twice and twice + 2 * size <= start + length), "the block around it fits too"


def test_subtrees_of_the_docstring() -> None:
    assert subtrees(3, 8) == [(3, 1), (4, 4)]


@settings(deadline=None)  # the first example compiles
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=6),
    st.sampled_from(["add", "mean", "mul"]),
    st.sampled_from([np.float32, np.float16]),
)
def test_subtrees_combined_first_give_the_same_bits(counts: list[int], op: str, dtype: type) -> None:
    """As if every process reduced its own replicas before it sends them."""
    total, start = sum(counts), 0
    data = draw(total, 17, dtype)
    nodes, sizes = [], []
    for count in counts:
        for first, size in subtrees(start, start + count):
            partial = np.zeros(17, np.float32)
            nodes.append(reduced(list(data[first : first + size]), "mul" if op == "mul" else "add", out=partial))
            sizes.append(size)
        start += count
    result = reduced(nodes, op, sizes=sizes, out=np.zeros(17, dtype), divisor=total)
    with np.errstate(all="ignore"):
        assert same_bits(result, tree(data, op))


def test_only_the_range_asked_for_is_written() -> None:
    data = draw(3, 5 * BLOCK, np.float32)
    out = np.full(5 * BLOCK, -7, np.float32)
    reduced(list(data), "add", out=out, within=(5, 4 * BLOCK + 3))
    expected = np.full(5 * BLOCK, -7, np.float32)
    expected[5 : 4 * BLOCK + 3] = tree(data, "add")[5 : 4 * BLOCK + 3]
    assert same_bits(out, expected)


@pytest.mark.parametrize("target", range(5))
def test_a_contribution_may_be_overwritten_by_the_result(target: int) -> None:
    data = draw(5, 3 * BLOCK + 1, np.float16)
    expected = tree(data, "add")
    reduced(list(data), "add", out=data[target])
    assert same_bits(data[target], expected)


@pytest.mark.parametrize("op", ["add", "mean"])
@pytest.mark.parametrize("count", [2, 4])
def test_leaves_that_all_get_the_result_are_combined_in_one_loop(count: int, op: str) -> None:
    special = np.array(list(product(SPECIAL, repeat=count)), np.float32).T.copy()
    drawn = [draw(count, 5 * BLOCK + 3, np.float32), draw(count, 301, np.float16), draw(count, 301, np.int32) % 1000]
    for data in (special, *drawn):
        with np.errstate(all="ignore"):
            expected = tree(data, op)
        how = recipe(Operator(op), (1,) * count, data.dtype, data.dtype, count)
        addresses = np.array([row.ctypes.data for row in data])
        scratch = np.zeros_like(new_scratch())
        reduce_range(how, addresses, addresses, count, 0, data.shape[1], scratch)
        assert all(same_bits(row, expected) for row in data)
        assert not scratch.any()  # no block used an accumulator


def test_copies_and_zeros_touch_exactly_their_bytes() -> None:
    source, target = np.arange(100, dtype=np.uint8), np.full(100, 255, np.uint8)
    copy_bytes(target.ctypes.data + 10, source.ctypes.data + 20, 30)
    assert target.tolist() == [255] * 10 + list(range(20, 50)) + [255] * 60
    zero_bytes(target.ctypes.data + 8, 10)
    zero_bytes(target.ctypes.data + 80, -20)
    assert target.tolist() == [255] * 8 + [0] * 10 + list(range(28, 50)) + [255] * 60
