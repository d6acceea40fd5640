"""Exchange limit: maxBytesPerTile splits exchanges into parts."""

from __future__ import annotations

import numpy as np
import pytest

from gcl.core.request import Collective
from gcl.fabric.fabric import Fabric, Topology
from gcl.scheduling.methods import METHODS, Method
from gcl.scheduling.options import Options
from gcl.scheduling.schedule import interpret, schedule

PLAIN = [method for method in METHODS if method is not Method.QUAD_DIRECTIONAL_RING]


def limited(per_tile: int) -> Options:
    return Options.from_environ({"GCL_OPTIONS": f'{{"maxBytesPerTile": {per_tile}}}', "GCL_NUM_IO_TILES": "32"})


@pytest.mark.parametrize("method", PLAIN)
@pytest.mark.parametrize("fabric", [Fabric(4), Fabric(4, 4, topology=Topology.TORUS)], ids=str)
@pytest.mark.parametrize("n", [7, 4 * 1000, 4 * 12_345])
def test_exchanges_respect_the_limit_and_results_are_unchanged(method: Method, fabric: Fabric, n: int) -> None:
    x = np.random.default_rng(n).integers(-9, 9, (4, n)).astype(np.int32)
    unlimited = schedule(Collective.ALL_REDUCE, fabric, n, methods=(method,))
    parts = schedule(Collective.ALL_REDUCE, fabric, n, methods=(method,), options=limited(40))
    for program in parts.programs:
        for exchange in program.exchanges:
            for ipu in range(fabric.ipus_per_replica):
                sent = sum(copy.source.elements for copy in exchange.copies if copy.ipu == ipu)
                # at least one element of each copy: pieces are whole
                assert sent * 4 <= 40 * 32 + 4 * len(exchange.copies)
    assert (interpret(parts, x) == interpret(unlimited, x)).all()
    assert parts.bytes_sent(0) == unlimited.bytes_sent(0)


def test_exchanges_of_a_clockwise_ring() -> None:
    """Fragments of 40,000 bytes, 32 tiles of 400 bytes: 4 exchanges for each of the 3 of a ring of 4."""
    plan = schedule(
        Collective.REDUCE_SCATTER, Fabric(4), 40_000, methods=(Method.CLOCKWISE_RING,), options=limited(400)
    )
    assert len(plan.programs[0].exchanges) == 3 * 4
    unlimited = schedule(Collective.REDUCE_SCATTER, Fabric(4), 40_000, methods=(Method.CLOCKWISE_RING,))
    assert len(unlimited.programs[0].exchanges) == 3
