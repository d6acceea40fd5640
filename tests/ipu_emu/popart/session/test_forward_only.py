"""The forward-only program of a pipelined training session: the same outputs, and no weight changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_emu import models, popart
from ipu_emu.hardware import GC200
from ipu_emu.session.footprint import footprints
from tests.ipu_emu.helpers.pipelined_models import KEPT, PIPELINE, Tower
from tests.ipu_emu.helpers.sessions import options

FORWARD = {"createImplicitPipeliningFwdOnlyProgram": True, **PIPELINE}


def anchored(tower: Tower) -> dict[str, Any]:
    return dict.fromkeys((tower.y, tower.loss), popart.AnchorReturnType("All"))


@pytest.mark.parametrize("location", KEPT)
@pytest.mark.parametrize(("stages", "R"), [(2, 1), (2, 2), (3, 2)])
def test_the_forward_pass_alone_gives_what_training_gives(stages: int, R: int, location: str) -> None:
    tower, A = Tower(stages), 6
    values = {"A": A, "R": R, "anchors": anchored(tower), **FORWARD, **(KEPT[location] if R > 1 else {})}
    session, other = (tower.session(**values) for _ in range(2))
    for step in range(2):
        data = tower.data(step, 1, A, R)
        (forward, again), trained = (
            (session_read.initAnchorArrays() for session_read in (session, session)),
            other.initAnchorArrays(),
        )
        session.run("forwardOnly", popart.PyStepIO(data, forward))
        session.run(popart.PyStepIO(data, again))
        other.run(popart.PyStepIO(data, trained))
        for id in trained:
            np.testing.assert_array_equal(forward[id], trained[id], err_msg=id)
            np.testing.assert_array_equal(again[id], trained[id], err_msg=id)
    session.close()


def test_weights_are_unchanged_and_statistics_continue() -> None:
    tower = Tower(2)
    session = tower.session(A=4, anchors=anchored(tower), **FORWARD)
    before = tower.read(session)
    session.run("forwardOnly", popart.PyStepIO(tower.data(0, 1, 4, 1), session.initAnchorArrays()))
    after = tower.read(session)
    changed = {id for id in before if not np.array_equal(before[id], after[id])}
    assert changed == {id for id in before if id.startswith(("mean", "var"))}


def test_there_is_no_such_program_unless_it_was_requested() -> None:
    tower = Tower(2)
    session = tower.session(A=4, **PIPELINE)
    with pytest.raises(popart.popart_exception, match=r"'forwardOnly'.*createImplicitPipeliningFwdOnlyProgram"):
        session.run("forwardOnly", popart.PyStepIO(tower.data(0, 1, 4, 1), session.initAnchorArrays()))


def pipelined(tiles: int, **values: Any) -> Any:
    """A transformer on two IPUs of ``tiles`` tiles."""
    model = models.transformer(batch=16, layers=4, width=64, length=64)
    opts = options(virtualGraphMode=popart.VirtualGraphMode.Auto, enablePipelining=True, A=4, **values)
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 2, "tilesPerIPU": tiles})
    flow = popart.DataFlow(1, [model.loss])
    return popart.TrainingSession(model.proto, flow, model.loss, popart.ConstSGD(0.1), device, userOptions=opts)


def test_its_memory_counts_in_addition_to_that_of_training() -> None:
    def fits(tiles: int) -> bool:
        return all(need.total <= tiles * GC200.tile_memory for need in footprints(executable, tiles))

    roomy = pipelined(GC200.tiles)
    roomy.prepareDevice(loadEngine=False)
    executable = roomy.executable
    least = next(tiles for tiles in range(1, GC200.tiles) if fits(tiles))
    pipelined(least).prepareDevice(loadEngine=False)
    with pytest.raises(popart.OutOfMemoryException, match="Out of memory: IPU"):
        pipelined(least, createImplicitPipeliningFwdOnlyProgram=True).prepareDevice(loadEngine=False)
    pipelined(2 * least, createImplicitPipeliningFwdOnlyProgram=True).prepareDevice(loadEngine=False)
