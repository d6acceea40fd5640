"""StepUse: the parts of a typical step of two recorded instances, one of which the other waits for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ipu_emu.predict.experiment.step_use import PARTS, StepUse, recorded_use, steps_so_far
from ipu_emu.trace.run import Run, read_run
from popdist_py.trace import PROFILE_SUFFIX, Category, Kind, Recorder
from popdist_py.trace.records import VERSION, key_of

MS = 1_000_000
#: Milliseconds from one step to the next: the first compiles, and there is a pause.
PERIODS = (500, 10, 10, 10, 10, 10, 90, 10, 10)
#: When each instance comes to the collective, which ends after 8 ms.
ARRIVALS = (4, 6)


def recorded(folder: Path, *, steps: int = len(PERIODS)) -> Run:
    """Steps of 8 ms and 2 ms between them: 1 ms host I/O, then compute until the collective."""
    for instance, arrival in enumerate(ARRIVALS):
        environment = {"POPDIST_REPLICA_INDEX_OFFSET": str(instance)}
        about = {"pid": 100 + instance, "host": "a", "boot": "b", "environment": environment}
        recorder = Recorder(str(folder), limit=64 << 20, about=about)
        step, io = recorder.name("step", Category.COMPUTE), recorder.name("input", Category.HOST_IO)
        reduce = recorder.name("all_reduce", Category.COLLECTIVES, communicator=0, bytes=4096, operator="add")
        start = 1000 * MS
        for number, period in enumerate((*PERIODS[:steps], 10)):
            recorder.record(key_of(Kind.SPAN, step), start, start + 8 * MS)
            recorder.record(key_of(Kind.SPAN, io), start, start + MS)
            recorder.record(key_of(Kind.SPAN, reduce), start + arrival * MS, start + 8 * MS, number)
            start += period * MS
        recorder.close()
    return read_run(folder)


@pytest.fixture
def use(tmp_path: Path) -> StepUse:
    use = recorded_use(recorded(tmp_path))
    assert use is not None
    return use


def test_the_parts_add_up_to_a_typical_step(use: StepUse) -> None:
    assert use.seconds == pytest.approx(10e-3)
    parts = dict(zip(PARTS, use.parts, strict=True))
    expected = {"compute": 4e-3, "host I/O": 1e-3, "waiting": 1e-3, "collectives": 2e-3, "other": 2e-3}
    assert parts == pytest.approx(expected)
    assert use.work == pytest.approx(7e-3)


def test_collectives_of_a_step(use: StepUse) -> None:
    assert (use.calls, use.nbytes, use.steps) == (1.0, 4096.0, len(PERIODS))


def test_samples_come_from_the_profile_of_the_program(tmp_path: Path) -> None:
    run = recorded(tmp_path)
    assert steps_so_far(run) == len(PERIODS) + 1
    profile = {"version": VERSION, "name": "p", "phase": "training", "modelled_seconds": 1.0, "modelled_cycles": 1}
    profile |= {"modelled_seconds_by_category": {}, "replicas": 2, "ipus_per_replica": 1, "tiles_per_ipu": 1}
    profile |= {"bytes_per_ipu": 1, "listing": "", "instructions": [], "memory": [], "stashes": []}
    profile |= {"samples": 24, "micro_batches": 3}
    (tmp_path / f"100.a.0{PROFILE_SUFFIX}").write_text(json.dumps(profile))
    for batch, samples in ((0, 48), (5, 30)):
        use = recorded_use(run, batch)
        assert use is not None
        assert use.samples == samples


def test_one_step_tells_no_period(tmp_path: Path) -> None:
    assert recorded_use(recorded(tmp_path, steps=0)) is None
