"""Queues: which elements an outfeed keeps, and the options of both kinds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_emu.errors import FeedError
from ipu_emu.tensorflow import OutfeedMode, OutfeedQueue


@pytest.mark.parametrize("mode", [None, "all", OutfeedMode.LAST, "get_last", "a name of old programs"])
def test_an_outfeed_keeps_all_or_the_last(mode: Any) -> None:
    rows = [np.random.default_rng(0).standard_normal((count, 3, 2)) for count in (4, 1, 2)]
    queue = OutfeedQueue(mode)
    assert queue.is_empty
    for array in rows:
        queue.put_rows([array, array[:, 0]])
    assert not queue.is_empty
    expected = rows[-1][-1] if queue.mode is OutfeedMode.LAST else np.concatenate(rows)
    first, second = queue.take()
    np.testing.assert_array_equal(first, expected)
    np.testing.assert_array_equal(second, expected[0] if queue.mode is OutfeedMode.LAST else expected[:, 0])
    assert queue.is_empty is (queue.mode is OutfeedMode.ALL)
    assert len(queue.take()) == (2 if queue.mode is OutfeedMode.LAST else 0)


def test_an_outfeed_that_keeps_the_last_must_have_one() -> None:
    with pytest.raises(FeedError, match="The outfeed is empty"):
        OutfeedQueue("get_last").take()


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"device_ordinal": -1}, "Device ordinal must be >= 0"),
        ({"buffer_depth": 0}, "Outfeed buffer depth cannot be less than 1"),
    ],
)
def test_options_of_outfeeds_are_checked(how: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        OutfeedQueue(**how)


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"prefetch_depth": -1}, "prefetch_depth must be greater than zero"),
        ({"prefetch_depth": "a"}, "prefetch_depth must be a whole number, not 'a'"),
        ({"prefetch_depth": 256}, "prefetch_depth must be less than 256"),
        ({"device_ordinal": 1.5}, "Device ordinal must be an integer"),
    ],
)
def test_options_of_infeeds_are_checked(tf: Any, ipu: Any, how: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.range(1), **how)


@pytest.mark.parametrize("how", [{"device_ordinal": "a feed's name"}, {"prefetch_depth": 0}, {"prefetch_depth": 2}])
def test_each_run_of_its_initializer_starts_an_infeed_again(tf: Any, ipu: Any, how: dict[str, Any]) -> None:
    """The name of old programs and a depth of 0 are the defaults."""
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.range(4), **how)
    with pytest.raises(tf.errors.FailedPreconditionError, match="run its initializer"):
        infeed.next_element()
    start, end = infeed.initializer, infeed.deleter
    with tf.Session() as session:
        for _ in range(2):
            session.run(start)
            assert [int(infeed.next_element()[0]) for _ in range(4)] == [0, 1, 2, 3]
            with pytest.raises(tf.errors.OutOfRangeError):
                infeed.next_element()
        session.run(end)
    with pytest.raises(tf.errors.FailedPreconditionError):
        infeed.next_element()
