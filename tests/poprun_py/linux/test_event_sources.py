"""Timers: calls are made in the order of their times, once these are due."""

from __future__ import annotations

import time

from poprun_py.linux.event_sources import Timers


def test_calls_are_made_in_order_once_they_are_due() -> None:
    timers, calls = Timers(), []
    assert timers.until_next() is None
    timers.call_later(0, lambda: calls.append("now"))
    for name, delay in (("third", 0.03), ("first", 0.01), ("second", 0.02), ("much later", 60.0)):
        timers.call_later(delay, lambda name=name: calls.append(name))
    assert 0 <= timers.until_next() <= 0.01
    time.sleep(0.03)
    timers.run_due()
    assert calls == ["now", "first", "second", "third"]
    assert 50 < timers.until_next() <= 60
