"""The tree of errors, and the message about the calls of two ranks that differ."""

import pytest

from gcl import ArgumentError, CollectiveMismatch, CollectiveTimeout, GclError, PeerLost, TransportError


@pytest.mark.parametrize("error", [ArgumentError, CollectiveMismatch, CollectiveTimeout, PeerLost, TransportError])
def test_one_except_clause_catches_all(error: type[GclError]) -> None:
    assert issubclass(error, GclError)
    assert issubclass(error, RuntimeError)


def test_errors_derive_from_the_builtin_ones() -> None:
    assert issubclass(ArgumentError, ValueError)
    assert issubclass(CollectiveTimeout, TimeoutError)


def test_a_mismatch_names_the_first_rank_and_the_first_that_differs() -> None:
    error = CollectiveMismatch.between(
        [
            ("replica 0", "barrier at a.py:1"),
            ("replica 1", "barrier at b.py:2"),
            ("replica 2", "all_gather(4 x float32) at c.py:3"),
            ("replica 3", "broadcast(root 0, 4 x float32) at d.py:4"),
        ]
    )
    assert str(error) == (
        "replica 0 called barrier at a.py:1, but replica 2 called all_gather(4 x float32) at c.py:3; "
        "every rank must make the same calls in the same order"
    )
