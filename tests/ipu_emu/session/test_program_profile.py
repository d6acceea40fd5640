"""Program profiles: modelled times and memory are those of the clock and the memory plan, and reports find them."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from ipu_emu.cli.arguments.compile_model import CompileRequest
from ipu_emu.hardware import Device, DeviceKind, System
from ipu_emu.program.clock.modelled_step import ModelledStep
from ipu_emu.session.program_profile import program_profile
from ipu_emu.session.program_record import ProgramRecord
from ipu_emu.trace.program_profiles import modelled_ops, read_profiles
from popdist_py.trace import PROFILE_SUFFIX, start, stop

POD = System.pod(16)
DEVICE = Device(DeviceKind.IPU, 0, 4, POD.tiles_per_ipu, POD.version)
KINDS = {
    "plain": CompileRequest("mlp", optimiser="adam"),
    "repeated": CompileRequest("mlp", accumulation=3),
    "pipelined": CompileRequest("transformer", ipus=2, accumulation=4, schedule="popart"),
}


@pytest.fixture(params=KINDS)
def step(request: pytest.FixtureRequest) -> ModelledStep:
    wanted = KINDS[request.param]
    return ModelledStep(wanted.compiled(POD).executable, DEVICE, 2, wanted.ipus)


def test_instructions_add_up_to_the_modelled_time_of_a_step(step: ModelledStep) -> None:
    profile = program_profile(step, "training")
    totals: dict[str, float] = defaultdict(float)
    for row in profile["instructions"]:
        totals[row["category"]] += row["times_per_step"] * row["modelled_seconds"]
    wanted = {kind: seconds for kind, seconds in profile["modelled_seconds_by_category"].items() if seconds}
    assert {kind: seconds for kind, seconds in totals.items() if seconds} == pytest.approx(wanted)
    assert profile["modelled_seconds"] == step.timeline.seconds


def test_exchange_and_sync_are_parts_of_the_time_of_each_instruction(step: ModelledStep) -> None:
    kinds = defaultdict[str, list[dict[str, Any]]](list)
    for row in step_instructions(step):
        kinds[row["category"]].append(row)
        parts = row["modelled_exchange_seconds"], row["modelled_sync_seconds"]
        assert min(parts) >= 0
        assert sum(parts) <= row["modelled_seconds"] * (1 + 1e-12)
    for moved in ("copies between IPUs", "host I/O"):  # they have no other work
        for row in kinds[moved]:
            assert row["modelled_exchange_seconds"] > 0 < row["modelled_sync_seconds"]
            both = row["modelled_exchange_seconds"] + row["modelled_sync_seconds"]
            assert both == pytest.approx(row["modelled_seconds"])
    for row in kinds["collectives"]:
        assert row["modelled_exchange_seconds"] > 0 < row["modelled_sync_seconds"]
    products = [row for row in kinds["compute"] if row["name"] in ("Gemm", "MatMul")]
    assert products
    for row in products:
        assert row["modelled_sync_seconds"] == pytest.approx(600 / step.machine.generation.clock)


def test_tensors_live_at_an_instant_add_up_to_the_live_bytes(step: ModelledStep) -> None:
    profile = program_profile(step, "training")
    assert len(profile["memory"]) == step.executable.plan.ipus
    for memory in profile["memory"]:
        assert len(memory["live_bytes"]) == len(profile["instructions"])
        for at, live in enumerate(memory["live_bytes"]):
            tensors = [tensor for tensor in memory["not_always_live"] if tensor["first"] <= at <= tensor["last"]]
            assert sum(tensor["bytes"] for tensor in tensors) == live
        weights = sum(tensor["bytes"] for tensor in memory["always_live"] if tensor["role"] == "weight")
        assert weights == memory["bytes_by_use"]["weights"]
        stashed = sum(tensor["bytes"] for tensor in profile["stashes"] if tensor["ipu"] == memory["ipu"])
        assert stashed == memory["bytes_by_use"]["stashes"] + memory["bytes_by_use"]["FIFOs"]


def test_memory_by_op_adds_up_to_that_of_all_tensors(step: ModelledStep) -> None:
    for memory in program_profile(step, "training")["memory"]:
        rows, always, others = (memory[key] for key in ("by_op", "always_live", "not_always_live"))
        assert len({(row["name"], row["output"]) for row in rows}) == len(rows)
        assert sum(row["always_live_bytes"] for row in rows) == sum(tensor["bytes"] for tensor in always)
        assert sum(row["not_always_live_bytes"] for row in rows) == sum(tensor["bytes"] for tensor in others)
        peak = sum(row["bytes_at_peak"] for row in rows) - sum(tensor["bytes"] for tensor in always)
        assert peak == max(memory["live_bytes"])
        known = {(op["name"], op["output"]) for op in step_instructions(step)}
        owners = {(row["name"], row["output"]) for row in rows if row["bytes_at_peak"]}
        assert owners <= known


def step_instructions(step: ModelledStep) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = program_profile(step, "training")["instructions"]
    return rows


def test_profiles_are_written_next_to_the_trace_and_only_with_one(tmp_path: Path) -> None:
    step = ModelledStep(KINDS["plain"].compiled(POD).executable, DEVICE, 1, 1)
    assert ProgramRecord.of(step, "training") is None
    start(tmp_path / "run")
    try:
        ProgramRecord.of(step, "training")
        ProgramRecord.of(step, "validation")
    finally:
        stop()
    first, second = read_profiles(tmp_path / "run").programs
    assert (first["name"], second["name"]) == ("training", "validation")
    assert {key: first[key] for key in first if key != "file"} == json.loads(
        json.dumps(program_profile(step, "training"))
    )
    ops = modelled_ops([first, second])
    assert {(row["name"], row["output"]) for row in first["instructions"]} == set(ops)
    assert max(op["flops"] for op in ops.values()) > 0


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"name": "x"}', "[" * 100_000])
def test_a_damaged_profile_is_left_out_with_one_sentence(tmp_path: Path, content: str) -> None:
    (tmp_path / f"1.0{PROFILE_SUFFIX}").write_text(content)
    (tmp_path / f"2.0{PROFILE_SUFFIX}").write_text(
        json.dumps(program_profile(ModelledStep(KINDS["plain"].compiled(POD).executable, DEVICE, 1, 1), "whole"))
    )
    profiles = read_profiles(tmp_path)
    assert [profile["name"] for profile in profiles.programs] == ["whole"]
    (said,) = profiles.damaged
    assert "profile of a program" in said
    assert said.endswith("the report leaves it out")


def test_a_profile_of_another_version_is_not_called_damaged(tmp_path: Path) -> None:
    step = ModelledStep(KINDS["plain"].compiled(POD).executable, DEVICE, 1, 1)
    profile = program_profile(step, "whole")
    (tmp_path / f"1.0{PROFILE_SUFFIX}").write_text(json.dumps({**profile, "version": profile["version"] - 1}))
    (said,) = read_profiles(tmp_path).damaged
    assert "was recorded in version" in said
    assert "damaged" not in said


DAMAGES: dict[str, Any] = {
    "a size that is text": ("memory", 0, "bytes_by_use", "transient", "x"),
    "a negative size": ("memory", 0, "bytes", -5),
    "no size": ("memory", 0, "bytes", None),
    "an endless size": ("memory", 0, "live_bytes", 0, float("inf")),
    "no list": ("memory", {}),
    "an op without a name": ("memory", 0, "by_op", 0, "name", None),
    "no lifetimes": ("memory", 0, "not_always_live", 3),
    "no tables of stashes": ("stashes", 5),
    "a stash of another form": ("stashes", [{"tensor": "x"}]),
    "a time that is text": ("modelled_seconds", "x"),
    "a span of another length": ("pipeline", {"seconds": 1.0, "efficiency": 0.5, "spans": [[0, 1.0]]}),
    "a listing that is no text": ("listing", 7),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_profile_with_one_damaged_value_is_left_out(tmp_path: Path, damage: str) -> None:
    step = ModelledStep(KINDS["plain"].compiled(POD).executable, DEVICE, 1, 1)
    profile = json.loads(json.dumps(program_profile(step, "whole")))
    *way, last, value = DAMAGES[damage]
    place = profile
    for part in way:
        place = place[part]
    place[last] = value
    (tmp_path / f"1.0{PROFILE_SUFFIX}").write_text(json.dumps(profile))
    profiles = read_profiles(tmp_path)
    assert not profiles.programs
    assert f"is damaged: its {[*way, last][0]} has the wrong form" in profiles.damaged[0]
