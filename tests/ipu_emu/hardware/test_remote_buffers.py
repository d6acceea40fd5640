"""Remote buffers: they hold what was written, in separate memory, within its limits."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from ipu_emu.hardware import StreamingMemory
from ipu_emu.hostio import Feed
from tests.ipu_emu.helpers.pipelined_models import KEPT, Tower


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint8, np.int64])
@pytest.mark.parametrize("shape", [(), (3,), (2, 5)])
@pytest.mark.parametrize("in_files", [False, True])
def test_a_remote_buffer_keeps_what_was_written(
    dtype: Any, shape: tuple[int, ...], in_files: bool, tmp_path: Path
) -> None:
    memory = StreamingMemory(folder=tmp_path if in_files else None)
    buffer = memory.add_buffer("b", shape, dtype, repeats=4, replicas=2)
    values = np.random.default_rng(0).integers(0, 100, (2, 4, *shape)).astype(dtype)
    assert (buffer.shape, buffer.dtype, buffer.repeats, buffer.replicas) == (shape, np.dtype(dtype), 4, 2)
    assert not buffer.read(3).any()
    for replica in range(2):
        for index in range(4):
            buffer.write(values[replica, index], index, replica=replica)
    for replica in range(2):
        for index in range(4):
            np.testing.assert_array_equal(buffer.read(index, replica=replica), values[replica, index])
    assert not list(tmp_path.iterdir())  # files have no names


def test_reading_copies_and_viewing_does_not() -> None:
    buffer = StreamingMemory().add_buffer("b", (3,), np.float32)
    copy, view, out = buffer.read(), buffer.view(), np.empty(3, np.float32)
    view[:] = 1, 2, 3
    assert copy.tolist() == [0, 0, 0]
    assert buffer.read(out=out) is out
    assert out.tolist() == [1, 2, 3]


def test_threads_use_different_places() -> None:
    buffer = StreamingMemory().add_buffer("b", (1000,), np.int32, repeats=16)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda index: buffer.write(np.full(1000, index, np.int32), index), range(16)))
    assert [int(buffer.read(index).sum()) for index in range(16)] == [1000 * index for index in range(16)]


def test_buffers_share_a_budget() -> None:
    memory = StreamingMemory(1000, taken=100)
    first = memory.add_buffer("first", (100,), np.float32)
    assert (first.nbytes, memory.used, memory.free) == (448, 548, 452)
    with pytest.raises(popart.OutOfMemoryException, match=r"'second'.*832 B.*452 B of 1,000 B"):
        memory.add_buffer("second", (200,), np.float32)
    memory.remove("first")
    assert memory.add_buffer("second", (200,), np.float32) is memory.buffers["second"]


REFUSED: dict[str, tuple[Any, str]] = {
    "the same handle": (
        lambda m: m.add_buffer("b", (1,), "f4"),
        "handle 'b' is not possible; give each buffer a unique handle",
    ),
    "no handle": (lambda m: m.add_buffer("", (1,), "f4"), "handle '' is not possible"),
    "no repeats": (lambda m: m.add_buffer("c", (1,), "f4", repeats=0), "repeats=0 is not possible"),
    "an empty shape": (lambda m: m.add_buffer("c", (2, 0), "f4"), r"shape\[1\]=0 is not possible"),
    "a wrong place": (lambda m: m.buffers["b"].read(2), "place 2 is out of range; use 0 to 1"),
    "a negative place": (lambda m: m.buffers["b"].write([1.0], -1), "place -1 is out of range"),
    "a wrong replica": (lambda m: m.buffers["b"].view(replica=1), "replica 1 is out of range; use 0 to 0"),
    "a wrong shape": (
        lambda m: m.buffers["b"].write(np.ones(2, "f4")),
        r"float32\[2\] was given; it holds float32\[1\]",
    ),
    "a wrong type": (lambda m: m.buffers["b"].write(np.ones(1, complex)), r"complex128\[1\] was given"),
    "a wrong array": (
        lambda m: m.buffers["b"].read(out=np.ones(1)),
        r"the array is float64\[1\], but an entry is float32\[1\]",
    ),
    "an unknown handle": (lambda m: m.remove("c"), "no remote buffer 'c'; there are b"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_mistakes_are_reported(name: str) -> None:
    memory = StreamingMemory()
    memory.add_buffer("b", (1,), np.float32, repeats=2)
    mistake, text = REFUSED[name]
    with pytest.raises(popart.popart_exception, match=text):
        mistake(memory)


def test_a_folder_that_is_full_or_not_there(tmp_path: Path) -> None:
    memory = StreamingMemory(folder=tmp_path / "missing")
    with pytest.raises(popart.popart_exception, match=r"Cannot allocate .* in .*missing: No such file or directory"):
        memory.add_buffer("b", (1,), np.float32)
    with pytest.raises(popart.popart_exception, match=r"Cannot allocate .* in memory"):
        StreamingMemory().add_buffer("b", (1 << 59,), np.float32)


def test_a_session_has_what_its_plan_leaves() -> None:
    session = Tower(1).session(**KEPT["off chip"])
    memory = session.streamingMemory
    assert memory is session.streamingMemory
    assert memory.capacity == 64 * 10**9
    assert memory.used == session.executable.plan.streaming_bytes_of(0) > 0
    memory.add_buffer("b", (4,), np.float32)
    session.close()
    assert not memory.buffers


def test_some_systems_have_no_remote_memory() -> None:
    with pytest.raises(popart.OutOfMemoryException, match="does not support remote memory"):
        StreamingMemory(0).add_buffer("b", (1,), np.float32)


@pytest.mark.parametrize(("workers", "processes"), [(0, None), (2, False), (2, True)])
def test_feeds_read_what_is_kept_there(workers: int, processes: bool | None) -> None:
    """A data set that was prepared once, in Streaming Memory."""
    buffer = StreamingMemory().add_buffer("samples", (3,), np.float32, repeats=20)
    data = np.random.default_rng(0).standard_normal((20, 3)).astype(np.float32)
    for index, row in enumerate(data):
        buffer.write(row, index)
    with Feed(buffer, micro_batch=4, workers=workers, processes=processes) as feed:
        np.testing.assert_array_equal([step.copy() for step in feed], data.reshape(5, 4, 3))
