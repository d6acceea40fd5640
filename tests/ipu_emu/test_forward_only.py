"""The forward-only program of a pipelined training session: the outputs of training, and nothing learns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from tests.ipu_emu.pipelines import KEPT, PIPELINE, Tower

FORWARD = {"createImplicitPipeliningFwdOnlyProgram": True, **PIPELINE}


def anchored(tower: Tower) -> dict[str, Any]:
    return dict.fromkeys((tower.y, tower.loss), popart.AnchorReturnType("All"))


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize(("stages", "R"), [(2, 1), (2, 2), (3, 2)])
def test_the_forward_pass_alone_gives_what_training_gives(stages: int, R: int, kept: str) -> None:
    tower, A = Tower(stages), 6
    values = {"A": A, "R": R, "anchors": anchored(tower), **FORWARD, **(KEPT[kept] if R > 1 else {})}
    session, other = (tower.session(**values) for _ in range(2))
    for step in range(2):
        data = tower.data(step, 1, A, R)
        (forward, again), trained = (one.initAnchorArrays() for one in (session, session)), other.initAnchorArrays()
        session.run("forwardOnly", popart.PyStepIO(data, forward))
        session.run(popart.PyStepIO(data, again))
        other.run(popart.PyStepIO(data, trained))
        for id in trained:
            np.testing.assert_array_equal(forward[id], trained[id], err_msg=id)
            np.testing.assert_array_equal(again[id], trained[id], err_msg=id)
    session.close()


def test_weights_stay_as_they_are_and_statistics_go_on() -> None:
    tower = Tower(2)
    session = tower.session(A=4, anchors=anchored(tower), **FORWARD)
    before = tower.read(session)
    session.run("forwardOnly", popart.PyStepIO(tower.data(0, 1, 4, 1), session.initAnchorArrays()))
    after = tower.read(session)
    changed = {id for id in before if not np.array_equal(before[id], after[id])}
    assert changed == {id for id in before if id.startswith(("mean", "var"))}


def test_there_is_no_such_program_unless_it_was_asked_for() -> None:
    tower = Tower(2)
    session = tower.session(A=4, **PIPELINE)
    with pytest.raises(popart.popart_exception, match="There is no program 'forwardOnly'; set the session option"):
        session.run("forwardOnly", popart.PyStepIO(tower.data(0, 1, 4, 1), session.initAnchorArrays()))
