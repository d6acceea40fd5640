"""Patience: what is said of quick and of slow work."""

from __future__ import annotations

from threading import Event

from ipu_emu.compiler.patience import Patience


def test_quick_work_says_nothing() -> None:
    said: list[str] = []
    with Patience(said.append, seconds=60) as says:
        says("one")
        says("two")
    assert said == []


def test_slow_work_says_what_goes_on_and_what_begins() -> None:
    said: list[str] = []
    printed = Event()

    def write(text: str) -> None:
        said.append(text)
        printed.set()

    with Patience(write, seconds=0.02) as says:
        says("one")
        assert printed.wait(10)
        says("two")
    assert said == ["one", "two"]
