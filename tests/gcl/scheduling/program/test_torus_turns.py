"""The split of exchanges on a torus with more than two IPUs per replica."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gcl.core.request import Collective
from gcl.fabric.fabric import Fabric, Topology
from gcl.scheduling.methods import Method
from gcl.scheduling.program.torus_turns import pairs, split
from gcl.scheduling.schedule import interpret, schedule


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({0: 40, 1: 20, 2: 10, 3: 30}, [(2, 1), (0, 3)]),
        ({0: 5, 1: 5, 2: 5, 3: 5}, [(0, 1), (2, 3)]),  # stable
        ({0: 3, 1: 9, 2: 3, 3: 8, 4: 1, 5: 8}, [(4, 3), (0, 5), (2, 1)]),
        ({0: 3, 2: 1, 3: 8}, [(2, 3), (0,)]),
        ({}, []),
    ],
)
def test_pairs(sizes: dict[int, int], expected: list[tuple[int, ...]]) -> None:
    assert pairs(sizes) == expected


@pytest.mark.parametrize("ipus", [2, 4, 8, 16])
@pytest.mark.parametrize("topology", list(Topology))
def test_exchanges_per_step(ipus: int, topology: Topology) -> None:
    fabric = Fabric(4, ipus, 1 if ipus < 16 else 2, topology)
    method = (Method.CLOCKWISE_RING,)
    step_program = schedule(Collective.REDUCE_SCATTER, fabric, 640, methods=method).programs[0]
    steps = fabric.replicas_per_domain - 1
    splits = ipus // 2 if topology is Topology.TORUS and ipus > 2 else 1
    assert len(step_program.exchanges) == steps * splits
    for exchange in step_program.exchanges:
        rails = [copy.ipu % 2 for copy in exchange.copies]
        assert splits == 1 or sorted(rails) == [0, 1]


def test_the_split_changes_no_result() -> None:
    torus, mesh = Fabric(4, 8, 1, Topology.TORUS), Fabric(4, 8)
    x = np.random.default_rng(5).random((4, 1003)).astype(np.float32)
    methods = (Method.MEET_IN_MIDDLE_RING,)
    unsplit = schedule(Collective.REDUCE_SCATTER, mesh, 1003, methods=methods)
    parts = schedule(Collective.REDUCE_SCATTER, torus, 1003, methods=methods)
    flat = replace(parts.programs[0], steps=split(parts.programs[0], mesh).steps)
    assert flat == parts.programs[0]  # a mesh needs none
    assert parts.programs[0].elements_sent(0) == unsplit.programs[0].elements_sent(0)
    total = x.sum(axis=0)
    for plan in (unsplit, parts):
        gathered = interpret(plan, x)
        assert np.isclose(np.sort(gathered.reshape(-1))[-total.size :], np.sort(total), rtol=1e-5).all()
