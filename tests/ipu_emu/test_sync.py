"""Sync patterns: who waits for whom when the host gives and takes data, in a pipeline and in its executable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from ipu_emu.engine.meetings import meetings
from ipu_emu.hardware import PATTERNS
from ipu_emu.popart import SyncPattern
from ipu_emu.program.schedules import schedule
from tests.ipu_emu.pipelines import PIPELINE, Tower, threads
from tests.ipu_emu.sessions import options


def drawn(pattern: str, stages: int, count: int) -> list[tuple[str, str, str, str]]:
    """For each slot of an inference pipeline what is given before and beside, and taken beside and after it."""
    slots = [
        tuple((task.stage, task.micro_batch) for task in slot)
        for slot in schedule("popart", stages, count, training=False)
    ]
    found = list(meetings(slots, range(stages), PATTERNS[pattern]))
    assert [meeting.tasks for meeting in found] == slots

    def text(tasks: Any, stage: int) -> str:
        return " ".join(str(micro_batch) for number, micro_batch in tasks if number == stage)

    last = stages - 1
    return [
        (text(m.given_before, 0), text(m.given_beside, 0), text(m.taken_beside, last), text(m.taken_after, last))
        for m in found
    ]


def test_an_ipu_meets_the_host_alone_with_single_pipeline() -> None:
    assert drawn("SinglePipeline", 2, 4) == [
        ("0", "1", "", ""),
        ("", "2", "", ""),
        ("", "3", "0", ""),
        ("", "", "1", ""),
        ("", "", "2", "3"),
    ]


def test_all_wait_with_full() -> None:
    assert drawn("Full", 2, 4) == [
        ("0", "1", "", ""),
        ("", "", "", "0"),
        ("2", "", "", "1"),
        ("3", "", "", ""),
        ("", "", "2", "3"),
    ]


def test_a_rail_waits_for_itself_with_replica_and_ladder() -> None:
    """Stages 0 and 2 are on one rail, stages 1 and 3 on the other."""
    found = drawn("ReplicaAndLadder", 4, 5)
    assert found[:4] == [("0", "1", "", ""), ("", "2", "", ""), ("", "", "", ""), ("3", "", "", "0")]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_everything_is_given_and_taken_once_and_in_order(pattern: str) -> None:
    for stages in (1, 2, 3, 5):
        table = drawn(pattern, stages, 7)
        given = [m for before, beside, _, _ in table for m in (before, beside) if m]
        taken = [m for _, _, beside, after in table for m in (beside, after) if m]
        assert given == taken == [str(number) for number in range(7)]


class Watched(popart.PyStepIO):
    """Notes for each chunk whether stages were running when it was asked for."""

    seen: list[bool]
    workers: Any

    def read(self, id: str) -> Any:
        self.seen.append(self.workers.busy)
        return super().read(id)


@pytest.mark.parametrize(("pattern", "beside"), [("SinglePipeline", 7), ("Full", 1)])
def test_the_engine_waits_as_the_pattern_says(monkeypatch: pytest.MonkeyPatch, pattern: str, beside: int) -> None:
    threads(monkeypatch, 2)
    tower = Tower(2)
    session = on(SyncPattern[pattern], tower, 8)
    session.prepareDevice()
    stepio = Watched({tower.x: tower.data(0, 8, 1, 1)[tower.x]}, session.initAnchorArrays())
    stepio.seen, stepio.workers = [], session.engine._workers
    session.run(stepio)
    assert (len(stepio.seen), sum(stepio.seen)) == (8, beside)
    session.close()


def on(pattern: SyncPattern, tower: Tower, bps: int, **values: Any) -> Any:
    """An inference session of a pipeline on IPUs with this pattern."""
    device = popart.DeviceManager().acquireAvailableDevice(2, pattern=pattern)
    flow = popart.DataFlow(bps, {tower.y: popart.AnchorReturnType("All")})
    opts = options(**{**PIPELINE, **values})
    return popart.InferenceSession(tower.builder.getModelProto(), flow, device, userOptions=opts)


def test_the_pattern_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    threads(monkeypatch, 2)
    found = []
    for pattern in SyncPattern:
        tower = Tower(2)
        session = on(pattern, tower, 8)
        session.prepareDevice()
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({tower.x: tower.data(0, 8, 1, 1)[tower.x]}, anchors))
        found.append(anchors[tower.y])
        session.close()
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_an_executable_is_for_one_pattern(tmp_path: Path) -> None:
    tower, path = Tower(2), str(tmp_path / "pipeline.popart")
    first = on(SyncPattern.SinglePipeline, tower, 4)
    first.compileAndExport(path)
    for pattern in (SyncPattern.Full, SyncPattern.SinglePipeline):
        second = on(pattern, tower, 4)
        second.loadExecutable(path)
        if pattern is SyncPattern.Full:
            for load in (second.loadEngineAndConnectStreams, second.prepareDevice):
                with pytest.raises(popart.popart_exception) as error:
                    load()
                assert error.value.args[0].startswith(
                    "The executable was compiled for the sync pattern SinglePipeline, but the device has Full"
                )
        else:
            second.loadEngineAndConnectStreams()
            second.close()


def test_a_folder_of_executables_serves_all_patterns(tmp_path: Path) -> None:
    for pattern in SyncPattern:
        session = on(pattern, Tower(2), 4, enableEngineCaching=True, cachePath=str(tmp_path))
        session.prepareDevice()
        assert session.executable.sync == pattern.name
        session.close()
    assert len(list(tmp_path.glob("*.ipuexe"))) == 1
