"""Stamped calls: groups of calls as one function without loops, which records the time after each group.

Python specialises each call site for the function that it calls. A loop over calls has one call site for all of them;
a function that names every call has one for each, which makes calls faster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any

from ipu_emu.ops import Call

__all__ = ["StampedCalls", "stamped_calls"]

#: Runs the calls and writes the times to these words, beginning at this index.
StampedCalls = Callable[[memoryview, int], None]

_FUNCTION = """\
def bind({names}):
    def run(words, start):
        {lines}
    return run
"""


def stamped_calls(groups: Sequence[Sequence[Call]]) -> StampedCalls:
    """Run the calls of each group in order, then write the time: one word for each group."""
    names: dict[str, Any] = {"now": perf_counter_ns}
    lines = list[str]()
    for place, group in enumerate(groups):
        calls = {f"call{len(names) + index}": call for index, call in enumerate(group)}
        names |= calls
        lines += [*(f"{name}()" for name in calls), f"words[start + {place}] = now()"]
    namespace: dict[str, Any] = {}
    text = _FUNCTION.format(names=", ".join(names), lines="\n        ".join(lines))
    exec(compile(text, "<calls of instructions>", "exec"), namespace)
    run: StampedCalls = namespace["bind"](**names)
    return run
