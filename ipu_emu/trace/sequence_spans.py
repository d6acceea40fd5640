"""SequenceSpans: the spans of a sequence, whose time stamps are recorded in rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from popdist_py.trace.records import BEGIN, RECORD_WORDS, VALUE, Kind

#: One record as read from a file; ``thread`` is its id in the operating system.
RECORDS = np.dtype(
    [
        ("begin", np.int64),
        ("end", np.int64),
        ("value", np.int64),
        ("name", np.uint32),
        ("track", np.uint16),
        ("kind", np.uint16),
        ("thread", np.uint32),
    ]
)


@dataclass(frozen=True)
class SequenceSpans:
    """For each span: its name, the time stamp of its group, and the fractions of the group's time before and with it.

    A group is a span, or short ones that were timed together; these share its time in known proportions.
    """

    names: NDArray[np.uint32]
    groups: NDArray[np.intp]
    before: NDArray[np.float64]
    after: NDArray[np.float64]

    @classmethod
    def of(cls, args: Mapping[str, Any]) -> SequenceSpans:
        """Parse the definition of a sequence; a damaged one has no spans."""
        listed, groups = args.get("spans"), args.get("groups")
        names = [n for n in listed if type(n) is int and n >> 32 == 0] if isinstance(listed, list) else []
        if groups is None:
            groups = [[1]] * len(names)
        if not _are_weights(groups) or sum(map(len, groups)) != len(names):
            names, groups = [], []
        sums = [np.cumsum([0, *(max(weight, 1) for weight in group)]) for group in groups]
        return cls(
            np.array(names, np.uint32),
            np.repeat(np.arange(len(groups)), list(map(len, groups))),
            np.concatenate([[], *(bounds[:-1] / bounds[-1] for bounds in sums)]),
            np.concatenate([[], *(bounds[1:] / bounds[-1] for bounds in sums)]),
        )

    def spans(self, rows: NDArray[np.int64], starts: NDArray[np.intp]) -> NDArray[Any]:
        """The spans of the rounds that start at these records; the span that runs when the process ends is open."""
        count = int(self.groups[-1]) + 1 if len(self.groups) else 0
        held = rows[starts, VALUE] & 0xFFFFFFFF
        starts = starts[(held == count) & ((starts + 1) * RECORD_WORDS + count <= rows.size)]
        if not count or not len(starts):
            return np.zeros(0, RECORDS)
        stamps = rows.reshape(-1)[(starts[:, None] + 1) * RECORD_WORDS + np.arange(count)]
        done = np.where((stamps == 0).any(1), np.argmin(stamps != 0, 1), count)[:, None]
        bounds = np.concatenate([rows[starts, BEGIN][:, None], stamps], 1)
        first, lengths = bounds[:, :-1][:, self.groups], np.diff(bounds, axis=1)[:, self.groups]
        is_open = (self.groups == done) & (self.before == 0)
        out = np.zeros(first.shape, RECORDS)
        out["begin"] = first + np.rint(self.before * lengths).astype(np.int64)
        out["begin"][is_open] = first[is_open]
        out["end"] = first + np.rint(self.after * lengths).astype(np.int64)
        out["end"][is_open] = 0
        out["name"], out["kind"] = self.names, Kind.SPAN
        out["value"] = (rows[starts, VALUE] >> 32)[:, None]
        spans: NDArray[Any] = out[(self.groups < done) | is_open]
        return spans


def _are_weights(groups: object) -> bool:
    return isinstance(groups, list) and all(
        isinstance(group, list) and group and all(type(weight) is int and weight >> 62 == 0 for weight in group)
        for group in groups
    )
