"""Segments: tensors in memory that other ranks can address."""

import numpy as np
import pytest

from gcl import ArgumentError, TransportError
from gcl.transport.memory.segment import Segment, map_memory

FLOAT = np.dtype(np.float32)


@pytest.fixture
def segment() -> Segment:
    return Segment(map_memory(-1, 1 << 20))


def test_tensors_are_zeroed_contiguous_aligned_and_apart(segment: Segment) -> None:
    tensors = [segment.empty((3, 5), FLOAT) for _ in range(4)]
    for index, tensor in enumerate(tensors):
        assert not tensor.any()
        assert tensor.flags.c_contiguous
        assert tensor.ctypes.data % 4096 == 0
        tensor[...] = index
    assert [set(tensor.ravel().tolist()) for tensor in tensors] == [{0}, {1}, {2}, {3}]


@pytest.mark.parametrize("shape", [(0,), (1,), (7,), (2, 0, 3), (100, 101), ()])
def test_any_shape(segment: Segment, shape: tuple[int, ...]) -> None:
    assert segment.empty(shape, FLOAT).shape == shape


def test_the_offset_of_a_tensor_is_where_others_find_it(segment: Segment) -> None:
    first, second = segment.empty((8,), FLOAT), segment.empty((8,), FLOAT)
    assert segment.offset_of(first) == first.ctypes.data - segment.address
    assert segment.offset_of(second[3:]) == second.ctypes.data + 12 - segment.address
    assert segment.offset_of(np.zeros(8)) is None


def test_memory_of_a_released_tensor_is_reused_and_zeroed(segment: Segment) -> None:
    tensor = segment.empty((1000,), FLOAT)
    tensor[...] = 5
    offset = segment.offset_of(tensor)
    del tensor
    again = segment.empty((990,), FLOAT)
    assert segment.offset_of(again) == offset
    assert not again.any()


def test_a_view_keeps_its_memory(segment: Segment) -> None:
    view = segment.empty((1000,), FLOAT)[10:20].reshape(2, 5)
    view[...] = 5
    others = [segment.empty((1000,), FLOAT) for _ in range(8)]
    assert not any(np.shares_memory(view, other) for other in others)
    assert (view == 5).all()


def test_thousands_of_tensors_of_any_size_fit_if_few_live_at_once(segment: Segment) -> None:
    sizes = np.random.default_rng(0).integers(0, 30_000, 5000)
    for size in sizes:
        segment.empty((int(size),), FLOAT)


def test_a_full_segment_says_what_is_left(segment: Segment) -> None:
    with pytest.raises(ArgumentError, match=r"shared segment.*1048576 bytes"):
        segment.empty((1 << 20,), FLOAT)
    segment.empty((1 << 16,), FLOAT)
    with pytest.raises(ArgumentError, match="free tensors, or raise segment_bytes"):
        segment.empty((1 << 18,), FLOAT)


def test_address_space_that_cannot_be_reserved_is_an_error() -> None:
    with pytest.raises(TransportError, match=r"address space.*shared segment"):
        map_memory(-1, 1 << 60)


def test_reserved_memory_costs_nothing_until_it_is_touched() -> None:
    memory = map_memory(-1, 1 << 40)
    memory[[0, -1]] = 1
    assert memory.size == 1 << 40
