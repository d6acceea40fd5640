"""Sync patterns: which IPUs wait while the host transfers data, in a pipeline and in its executable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from threading import Event
from time import sleep
from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from ipu_emu.engine.pipeline.host_sync import host_syncs
from ipu_emu.hardware import PATTERNS
from ipu_emu.ops import TABLE
from ipu_emu.popart import SyncPattern
from ipu_emu.program.instructions import Pipeline, ShardCollectives
from ipu_emu.program.schedules import schedule
from tests.ipu_emu.helpers.pipelined_models import KEPT, PIPELINE, Tower, threads
from tests.ipu_emu.helpers.sessions import options


def drawn(pattern: str, stages: int, count: int) -> list[tuple[str, str, str, str]]:
    """For each slot of an inference pipeline, the loads before and during it, and the stores during and after it."""
    slots = [
        tuple((task.stage, task.micro_batch) for task in slot)
        for slot in schedule("popart", stages, count, training=False)
    ]
    syncs = list(host_syncs(slots, range(stages), PATTERNS[pattern]))
    assert [sync.tasks for sync in syncs] == slots

    def text(tasks: Any, stage: int) -> str:
        return " ".join(str(micro_batch) for number, micro_batch in tasks if number == stage)

    last = stages - 1
    return [
        (text(m.given_before, 0), text(m.given_beside, 0), text(m.taken_beside, last), text(m.taken_after, last))
        for m in syncs
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
    slots = drawn("ReplicaAndLadder", 4, 5)
    assert slots[:4] == [("0", "1", "", ""), ("", "2", "", ""), ("", "", "", ""), ("3", "", "", "0")]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_input_is_given_and_every_output_taken_once_and_in_order(pattern: str) -> None:
    for stages in (1, 2, 3, 5):
        table = drawn(pattern, stages, 7)
        loads = [m for before, during, _, _ in table for m in (before, during) if m]
        taken = [m for _, _, during, after in table for m in (during, after) if m]
        assert loads == taken == [str(number) for number in range(7)]


def contains(w: str, ids: Sequence[str]) -> bool:
    return w in ids


class Watched(popart.PyStepIO):
    """Calls ``asked`` with the number of each requested chunk."""

    number = 0
    probe: Any

    def read(self, id: str) -> Any:
        self.probe(self.number)
        self.number += 1
        return super().read(id)


def watched(monkeypatch: pytest.MonkeyPatch, pattern: str, layers: dict[str, Any], probe: Any) -> None:
    """Run 8 micro-batches; call ``layers[w]`` with the micro-batch before the layer with weight ``w`` computes."""
    threads(monkeypatch, 2)
    with monkeypatch.context() as patched:
        before_layers(patched, layers)
        tower = Tower(2)
        session = on(SyncPattern[pattern], tower, 8)
        session.prepareDevice()
    stepio = Watched({tower.x: tower.data(0, 8, 1, 1)[tower.x]}, session.initAnchorArrays())
    stepio.probe = probe
    session.run(stepio)
    session.close()


def before_layers(monkeypatch: pytest.MonkeyPatch, layers: dict[str, Any], find: Any = contains) -> None:
    entry = TABLE.table["", "Gemm"]
    counts = {w: count() for w in layers}

    def kernel(bound: Any) -> Any:
        step, mine = entry.kernel(bound), [w for w in layers if find(w, bound.node.op.inputs)]

        def run() -> None:
            for w in mine:
                layers[w](next(counts[w]))
            step()

        return run

    monkeypatch.setitem(TABLE.table, ("", "Gemm"), replace(entry, kernel=kernel))


def test_with_full_no_other_ipu_works_while_the_host_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    works, seen = Event(), []

    def slow(micro_batch: int) -> None:
        works.set()
        sleep(0.02)
        works.clear()

    watched(monkeypatch, "Full", {"w1": slow}, lambda number: seen.append(works.is_set()))
    assert seen == [False] * 8


def test_with_single_pipeline_an_ipu_is_served_while_another_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second stage does not begin before the data of later slots was requested."""
    third, met = Event(), []
    waiting = {"w1": lambda micro_batch: met.append(third.wait(60))}
    watched(monkeypatch, "SinglePipeline", waiting, lambda number: third.set() if number == 2 else None)
    assert met == [True] * 8


def test_an_ipu_continues_as_soon_as_its_inputs_are_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first stage reaches micro-batch 2 while the second is held at 0, a slot earlier than in the schedule."""
    ahead, met = Event(), []
    layers = {
        "w0": lambda micro_batch: ahead.set() if micro_batch == 2 else None,
        "w1": lambda micro_batch: met.append(ahead.wait(60)),
    }
    watched(monkeypatch, "SinglePipeline", layers, lambda number: None)
    assert met == [True] * 8


def on(pattern: SyncPattern, tower: Tower, bps: int, **values: Any) -> Any:
    """An inference session of a pipeline on IPUs with this pattern."""
    device = popart.DeviceManager().acquireAvailableDevice(2, pattern=pattern)
    flow = popart.DataFlow(bps, {tower.y: popart.AnchorReturnType("All")})
    opts = options(**{**PIPELINE, **values})
    return popart.InferenceSession(tower.builder.getModelProto(), flow, device, userOptions=opts)


def test_collectives_in_a_stage_let_other_ipus_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas gather sharded weights in every stage; micro-batch 1 waits in the first until 0 is in the second."""
    threads(monkeypatch, 4)
    ahead, met = Event(), []
    layers = {
        "w0": lambda number: met.append(ahead.wait(60)) if number >= 2 else None,
        "w1": lambda number: ahead.set(),
    }
    with monkeypatch.context() as patched:
        before_layers(patched, layers, find=lambda w, ids: any(w in id for id in ids))
        tower = Tower(2, plain=True)
        device = popart.DeviceManager().acquireAvailableDevice(4, pattern=SyncPattern.SinglePipeline)
        flow = popart.DataFlow(1, {tower.loss: popart.AnchorReturnType("All")})
        opts = options(A=8, R=2, **PIPELINE, **KEPT["all shared and off chip"])
        session = popart.TrainingSession(
            tower.builder.getModelProto(), flow, tower.loss, popart.ConstSGD(0.1), device, userOptions=opts
        )
        session.prepareDevice()
    (pipeline,) = (part for part in session.executable.program[0].body if isinstance(part, Pipeline))
    assert all(any(isinstance(leaf, ShardCollectives) for leaf in stage.body) for stage in pipeline.stages[:2])
    session.weightsFromHost()
    session.run(popart.PyStepIO(tower.data(0, 1, 8, 2), session.initAnchorArrays()))
    session.close()
    assert met
    assert all(met)


def test_the_pattern_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    threads(monkeypatch, 2)
    results = []
    for pattern in SyncPattern:
        tower = Tower(2)
        session = on(pattern, tower, 8)
        session.prepareDevice()
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({tower.x: tower.data(0, 8, 1, 1)[tower.x]}, anchors))
        results.append(anchors[tower.y])
        session.close()
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


def test_an_executable_is_for_one_pattern(tmp_path: Path) -> None:
    tower, path = Tower(2), str(tmp_path / "pipeline.popart")
    first = on(SyncPattern.SinglePipeline, tower, 4)
    first.prepareDevice(False)
    first.saveExecutable(path)
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
