"""Failures: if ranks make different calls, every rank soon raises the same error."""

import gc
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

import numpy as np
import pytest

from gcl import CollectiveMismatch, CollectiveTimeout, Communicator, GclError, PeerLost, connect_threads
from tests.gcl.helpers.threads import errors_of, on_ranks, on_threads

Work = Callable[[Communicator], object]


def f32(communicator: Communicator, n: int = 4) -> np.ndarray:
    return np.zeros((communicator.local_replicas, n), np.float32)


#: The call of rank 0, the call of the others, and the names of both in the error.
DIFFERENT: dict[str, tuple[Work, Work, str, str]] = {
    "operator": (
        lambda c: c.all_reduce(f32(c), "add"),
        lambda c: c.all_reduce(f32(c), "max"),
        "all_reduce(add, 4 x float32)",
        "all_reduce(max, 4 x float32)",
    ),
    "size": (
        lambda c: c.all_reduce(f32(c, 4)),
        lambda c: c.all_reduce(f32(c, 5)),
        "all_reduce(add, 4 x float32)",
        "all_reduce(add, 5 x float32)",
    ),
    "dtype": (
        lambda c: c.all_gather(f32(c)),
        lambda c: c.all_gather(f32(c).astype(np.float16)),
        "all_gather(4 x float32)",
        "all_gather(4 x float16)",
    ),
    "root": (
        lambda c: c.broadcast(f32(c), 0),
        lambda c: c.broadcast(f32(c), 1),
        "broadcast(root 0, 4 x float32)",
        "broadcast(root 1, 4 x float32)",
    ),
    "collective": (
        lambda c: c.reduce_scatter(f32(c)),
        lambda c: c.barrier(),
        "reduce_scatter(add, 4 x float32)",
        "barrier",
    ),
}


@pytest.mark.parametrize("case", DIFFERENT)
@pytest.mark.parametrize("counts", [(1, 1), (2, 1, 1)], ids=str)
def test_a_mismatch_is_the_same_error_on_every_rank_and_names_both_calls(case: str, counts: tuple[int, ...]) -> None:
    first, others, call, differing = DIFFERENT[case]
    errors = errors_of(counts, lambda c: (others if c.global_offset else first)(c))
    assert len({str(error) for error in errors}) == 1
    error = errors[0]
    assert isinstance(error, CollectiveMismatch)
    first_line, other_line = (work.__code__.co_firstlineno for work in (first, others))
    assert f"(rank 0) called {call} at {__file__}:{first_line}, but" in str(error)
    assert f"(rank 1) called {differing} at {__file__}:{other_line};" in str(error)


def test_a_mismatch_of_background_collectives_names_the_lines_that_began_them() -> None:
    def first(communicator: Communicator) -> object:
        return communicator.all_reduce_async(f32(communicator)).wait(200)

    def other(communicator: Communicator) -> object:
        return communicator.all_reduce_async(f32(communicator), "max").wait(200)

    errors = errors_of((1, 1), lambda c: (other if c.global_offset else first)(c))
    lines = [f"{__file__}:{work.__code__.co_firstlineno + 1}" for work in (first, other)]
    assert f"(rank 0) called all_reduce(add, 4 x float32) at {lines[0]}, but" in str(errors[0])
    assert f"(rank 1) called all_reduce(max, 4 x float32) at {lines[1]};" in str(errors[1])


def test_a_mismatch_between_tensors_that_were_used_before() -> None:
    """Repeated calls take a shorter path."""

    def work(communicator: Communicator) -> None:
        x = communicator.empty(8)
        for _ in range(3):
            communicator.all_reduce(x, out=x)
            communicator.all_reduce(x, "max", out=x)
        communicator.all_reduce(x, "max" if communicator.global_offset else "add", out=x)

    errors = errors_of((1, 1, 1), work)
    assert {type(error) for error in errors} == {CollectiveMismatch}
    assert len({str(error) for error in errors}) == 1


def test_a_rank_that_never_arrives_is_named_by_its_replicas() -> None:
    errors = errors_of((1, 1, 2), lambda c: c.global_offset != 2 and c.barrier(), timeout=2.0)
    for error in errors[:2]:
        assert isinstance(error, CollectiveTimeout)
        assert "barrier waited 2 s for replicas 2 to 3 (rank 2);" in str(error)
    assert errors[2] is None


def test_all_ranks_that_never_arrive_are_named() -> None:
    errors = errors_of((1, 1, 1, 1), lambda c: c.global_offset % 2 or c.barrier(), timeout=2.0)
    assert "for replica 1 (rank 1), replica 3 (rank 3);" in str(errors[0])
    assert "for replica 1 (rank 1), replica 3 (rank 3);" in str(errors[2])


def test_a_rank_that_arrives_after_the_others_gave_up_does_not_wait() -> None:
    """The late rank must not sit out its own timeout for ranks that will never come back."""
    first, late = connect_threads((1, 1), segment_bytes=1 << 20, timeout=0.5)
    with pytest.raises(CollectiveTimeout):
        first.barrier()
    with pytest.raises(PeerLost, match=r"replica 0 \(rank 0\)"):
        late.barrier()


def test_a_rank_that_leaves_while_others_wait() -> None:
    def work(communicator: Communicator) -> None:
        if communicator.global_offset == 1:
            time.sleep(0.3)
            communicator.close()
        else:
            communicator.all_reduce(f32(communicator))

    started = time.monotonic()
    errors = errors_of((1, 1, 1), work)
    assert time.monotonic() - started < 100  # the timeout is 200 s
    for error in (errors[0], errors[2]):
        assert isinstance(error, PeerLost)
        assert "all_reduce(add, 4 x float32) waits for replica 1 (rank 1), which has left" in str(error)


def test_a_rank_that_forgets_its_communicator_has_left() -> None:
    """No collector of cycles is needed, even after calls that are kept to be repeated."""

    def call_and_forget(communicator: Communicator) -> None:
        communicator.all_reduce(x := f32(communicator), out=x)

    gc.disable()
    try:
        communicators = connect_threads((1, 1), segment_bytes=1 << 20, timeout=200.0)
        on_ranks(communicators, call_and_forget)
        stays = communicators.pop(0)
        communicators.clear()
        with pytest.raises(PeerLost, match=r"replica 1 \(rank 1\)"):
            stays.barrier()
    finally:
        gc.enable()


def test_a_rank_that_left_is_noticed_even_behind_one_that_is_only_late() -> None:
    """Rank 1 computes for long; the loss of rank 2 must be reported before it arrives."""
    first, slow, gone = connect_threads((1, 1, 1), segment_bytes=1 << 20, timeout=200.0)
    gone.close()
    with pytest.raises(PeerLost, match=r"replica 2 \(rank 2\)"):
        on_ranks([first], lambda communicator: communicator.barrier())
    with pytest.raises(PeerLost):
        slow.barrier()


def test_a_rank_that_arrives_just_before_it_leaves_is_not_lost() -> None:
    for _ in range(50):

        def work(communicator: Communicator) -> float:
            with communicator:
                return float(communicator.all_reduce(f32(communicator, 1) + 1)[0, 0])

        assert on_threads((1, 1, 1), work) == [3.0] * 3


@pytest.mark.parametrize("again", [lambda c: c.barrier(), lambda c: c.all_reduce(f32(c))])
def test_a_communicator_that_failed_raises_at_once(again: Work) -> None:
    first, _ = connect_threads((1, 1), segment_bytes=1 << 20, timeout=0.3)
    with pytest.raises(CollectiveTimeout) as caught:
        first.barrier()
    seconds = []
    for _ in range(5):
        started = time.monotonic()
        with pytest.raises(CollectiveTimeout) as repeated:
            again(first)
        seconds.append(time.monotonic() - started)
        assert str(repeated.value) == str(caught.value)
    assert min(seconds) < 0.25, "each of them waited"


def test_a_closed_communicator_raises() -> None:
    (alone,) = connect_threads((2,), segment_bytes=1 << 20)
    x = alone.empty(3)
    alone.all_reduce(x, out=x)
    alone.close()
    alone.close()
    for again in (lambda: alone.all_reduce(x, out=x), alone.barrier):
        with pytest.raises(GclError, match=r"closed.*connect"):
            again()


def test_after_an_interrupted_wait_a_communicator_raises() -> None:
    """The handler runs between any two bytecodes."""

    class Interrupt(Exception):
        pass

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupt

    assert threading.current_thread() is threading.main_thread()
    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        for delay in (0.05, 0.07, 0.1, 0.15):
            first, second = connect_threads((1, 1), segment_bytes=1 << 20, timeout=200.0)
            x = first.empty(4)
            signal.setitimer(signal.ITIMER_REAL, delay)
            with pytest.raises(Interrupt):
                first.all_reduce(x, out=x)
            for again in (lambda c=first, x=x: c.all_reduce(x, out=x), first.barrier):
                with pytest.raises(GclError, match="an earlier collective was interrupted"):
                    again()
            with pytest.raises(PeerLost, match=r"replica 0 \(rank 0\)"):
                second.barrier()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


@pytest.mark.parametrize(
    ("call", "other"),
    [
        (lambda c: c.all_reduce([ones(3), ones(5)]), lambda c: c.all_reduce([ones(5), ones(3)])),
        (lambda c: c.all_reduce([ones(3), ones(5)]), lambda c: c.all_reduce(ones(8))),
        (lambda c: c.reduce_scatter([ones(3)]), lambda c: c.reduce_scatter([ones(4)])),
        (lambda c: c.broadcast(ones(2, 3)), lambda c: c.broadcast(ones(3, 2))),
        (lambda c: c.shared((2, 3)), lambda c: c.shared((2000, 3))),
        (lambda c: c.shared(4), lambda c: c.shared(4, np.int32)),
        (lambda c: c.all_reduce(ones(4), "local"), lambda c: c.all_reduce(ones(4))),
        # calls whose 32-bit checksums are equal
        (lambda c: c.all_reduce(ones(98898)), lambda c: c.all_reduce(ones(946662), "mean")),
    ],
)
def test_calls_divided_in_different_ways_differ(call: Work, other: Work) -> None:
    def work(communicator: Communicator) -> str:
        try:
            (other if communicator.global_offset else call)(communicator)
        except CollectiveMismatch as error:
            return str(error)
        return "no error"

    first, second = on_threads((1, 1), work)
    assert first == second
    assert "replica 0 (rank 0) called" in first


def ones(*shape: int) -> np.ndarray:
    return np.ones((1, *shape), np.float32)
