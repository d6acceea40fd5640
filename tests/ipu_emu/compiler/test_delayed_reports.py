"""Delayed reports: none of quick work; slow work reports each activity."""

from __future__ import annotations

from threading import Event

from ipu_emu.compiler.delayed_reports import DelayedReports


def test_quick_work_reports_nothing() -> None:
    said: list[str] = []
    with DelayedReports(said.append, seconds=60) as report:
        report("one")
        report("two")
    assert said == []


def test_slow_work_reports_current_and_new_activities() -> None:
    said: list[str] = []
    printed = Event()

    def write(text: str) -> None:
        said.append(text)
        printed.set()

    with DelayedReports(write, seconds=0.02) as report:
        report("one")
        assert printed.wait(10)
        report("two")
    assert said == ["one", "two"]
