"""Every schedule with every number of stages, accumulation, recomputation, place of variables and number of replicas.

    python -m tests.ipu_emu.helpers.every_pipeline

960 trainings, each compared bit by bit with the plain run of as many stages; test_bound_pipeline.py runs a sample of
them.
"""

from __future__ import annotations

import warnings
from functools import cache
from itertools import product
from typing import Any
from unittest.mock import patch

import numpy as np

from ipu_emu import popart
from ipu_emu.popart import RecomputationType
from tests.ipu_emu.helpers.pipelined_models import EXPLICIT, KEPT, PIPELINE, Tower

SCHEDULES: dict[str, dict[str, Any]] = {
    "popart": PIPELINE,
    "explicit": EXPLICIT,
    **{kind: PIPELINE | {"pipelineSchedule": kind} for kind in ("grouped", "interleaved", "sequential")},
}
RECOMPUTE = (RecomputationType.NoRecompute, RecomputationType.Standard, RecomputationType.Pipeline)


@cache
def plain(stages: int, A: int, R: int) -> dict[str, np.ndarray]:
    tower = Tower(stages)
    return tower.trained(A=A, R=R, anchors=anchors(tower))


def anchors(tower: Tower) -> dict[str, Any]:
    return dict.fromkeys((tower.loss, tower.y), popart.AnchorReturnType("All"))


def same(schedule: str, stages: int, rounds: int, recompute: RecomputationType, location: str, R: int) -> bool:
    A, tower = 2 * stages * rounds, Tower(stages)
    values = SCHEDULES[schedule] | KEPT[location] | {"autoRecomputation": recompute}
    weights, want = tower.trained(A=A, R=R, anchors=anchors(tower), **values), plain(stages, A, R)
    return weights.keys() == want.keys() and all(np.array_equal(weights[id], want[id]) for id in want)


def main() -> None:
    warnings.simplefilter("ignore")
    cases = list(product(SCHEDULES, (2, 3, 4, 5), (1, 2), RECOMPUTE, KEPT, (1, 2)))
    with patch("ipu_emu.engine.engine.WORTH_A_THREAD", 0):
        differ = [case for case in cases if not same(*case)]
    print(f"{len(cases)} trainings, {len(differ)} differ from the plain run")
    for case in differ:
        print(case)
    raise SystemExit(bool(differ))


if __name__ == "__main__":
    main()
