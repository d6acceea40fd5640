"""Path selection: what ranks know about the machine that they run on."""

from __future__ import annotations

import os

import pytest

from gcl.core.world import World
from gcl.transport.paths.path_selection import HostPlacement
from gcl.transport.rendezvous.process_liveness import Process
from gcl.transport.rendezvous.rendezvous import Waits, new_waits


@pytest.mark.parametrize(("cores", "crowded"), [(1, True), (3, True), (4, False)])
def test_a_machine_is_crowded_by_the_ranks_of_all_its_hosts(
    cores: int, crowded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    world = World(0, (1,) * 6, tuple(map(str, range(6))))
    machines = ("m", "m", "m", "m", "n", "n")
    placement = HostPlacement(world, ("a", "a", "b", "b", "c", "c"), machines, (Process(0, 0),) * 6)
    assert placement.is_crowded is crowded


def test_a_wait_spins_only_where_every_rank_of_the_machine_has_a_core() -> None:
    assert new_waits(2, 2, across_hosts=False)[Waits.SPINS] > 0
    assert new_waits(3, 2, across_hosts=False)[Waits.SPINS] == 0
    assert new_waits(2, 2, across_hosts=True)[Waits.SPINS] < 0
