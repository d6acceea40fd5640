"""Step feed: a feed as the step data of a session; each run takes the next step, as views of its slot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from ipu_emu.errors import FeedError
from ipu_emu.graph import Tensor
from ipu_emu.hostio.data.data_modes import DataMode
from ipu_emu.hostio.feeds.array_feed import ArrayFeed
from ipu_emu.hostio.feeds.feed import Feed

__all__ = ["StepFeed"]


class StepFeed(ArrayFeed):
    """Step data with inputs from ``feed`` and outputs to arrays by tensor id.

    The names of the feed's arrays are tensor ids; ``names`` gives ids for a tuple or one array, or other ids for a
    dict. With synthetic data outputs are not written, as in PopART.
    """

    def __init__(
        self, feed: Feed, outputs: Mapping[str, NDArray[Any]], names: Sequence[str] | Mapping[str, str] | None = None
    ) -> None:
        super().__init__({}, outputs)
        self.feed = feed
        self._ids = _ids(feed, names)

    def attach(self, tensors: Mapping[str, Tensor]) -> None:
        """Take the next step; raise FeedError if there is none."""
        try:
            arrays = self.feed.next_arrays()
        except StopIteration:
            raise FeedError(
                f"The feed has delivered all of its {self.feed.position} steps; run "
                "fewer steps, or give it more epochs "
                "(epochs=None repeats the data without end)"
            ) from None
        self.provide(dict(zip(self._ids, arrays, strict=True)))
        super().attach(tensors)

    @property
    def step(self) -> int:
        """The number of the current step."""
        return self.feed.position - 1

    def upcoming(self) -> ArrayFeed | None:
        """Return the data of the next step if they are ready, else None."""
        arrays = self.feed.upcoming()
        if arrays is None:
            return None
        ahead = ArrayFeed(dict(zip(self._ids, arrays, strict=True)), {})
        ahead.attach(self._tensors)
        return ahead

    def write(self, id: str, value: NDArray[Any]) -> None:
        """Store the next chunk of an output."""
        if self.feed.mode is not DataMode.SYNTHETIC:
            super().write(id, value)


def _ids(feed: Feed, names: Sequence[str] | Mapping[str, str] | None) -> list[str]:
    keys = list(feed.structure.keys)
    if isinstance(names, Mapping):
        return [names.get(key, key) for key in keys]
    if names is None and feed.structure.kind is dict:
        return keys
    if names is None or len(names) != len(keys):
        count = 0 if names is None else len(names)
        raise FeedError(f"The feed's samples are {feed.structure}; name {len(keys)} tensors with names=, not {count}")
    return list(names)
