"""Names in messages: a communicator prints its place, a misspelt operator is met with the one that was meant."""

from __future__ import annotations

import pytest

import gcl


def test_a_communicator_prints_its_replicas_and_its_transport() -> None:
    assert repr(gcl.connect(local_replicas=2)).startswith("Communicator(replicas 0 to 1 of 2, ")


def test_a_misspelt_operator_is_met_with_the_one_that_was_meant() -> None:
    communicator = gcl.connect(local_replicas=1)
    with pytest.raises(gcl.ArgumentError, match=r"operator 'maen' is unknown; use add, .*; did you mean 'mean'\?"):
        communicator.all_reduce(communicator.empty(1), "maen")
