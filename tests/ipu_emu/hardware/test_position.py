"""Positions of IPUs in machines, ladders and IPU-Link domains."""

from __future__ import annotations

from ipu_emu.hardware import (
    System,
)


def test_positions() -> None:
    pod = System.named("2xpod16")
    last, first = pod.position(15), pod.position(16)
    assert (last.machine, last.place, last.row, last.rail, last.domain) == (3, 3, 7, 1, 0)
    assert (first.rung_partner, first.rail_neighbours, first.domain) == (17, (18,), 1)
    assert last.rail_neighbours == (13,)
    assert pod.position(0).hops(last) == 8
    assert pod.position(2).ports == {
        "rung": ("2A", "2B", "2C", "3A", "3B", "3C"),
        "rail": ("0B", "0C"),
        "other machines": ("1B", "1C"),
    }
