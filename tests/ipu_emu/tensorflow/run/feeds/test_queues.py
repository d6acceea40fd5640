"""Queues: which elements an outfeed keeps, and the options of both kinds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_emu.errors import FeedError
from ipu_emu.tensorflow import InfeedQueue, OutfeedMode, OutfeedQueue


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
    ("kind", "how", "text"),
    [
        (InfeedQueue, {"prefetch_depth": -1}, "prefetch_depth must be greater than zero"),
        (InfeedQueue, {"prefetch_depth": "a"}, "prefetch_depth must be a whole number, not 'a'"),
        (InfeedQueue, {"prefetch_depth": 256}, "prefetch_depth must be less than 256"),
        (InfeedQueue, {"device_ordinal": 1.5}, "Device ordinal must be an integer"),
        (OutfeedQueue, {"device_ordinal": -1}, "Device ordinal must be >= 0"),
        (OutfeedQueue, {"buffer_depth": 0}, "Outfeed buffer depth cannot be less than 1"),
    ],
)
def test_options_are_checked(kind: Any, how: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        kind(**how)


def test_options_of_old_programs_are_the_defaults() -> None:
    assert InfeedQueue("a feed's name").device_ordinal == 0
    assert InfeedQueue(prefetch_depth=0).prefetch_depth == 3
