"""ipu-emu clock: the modelled step as text, JSON, timelines and traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import ANY
from xml.etree import ElementTree

import pytest

from ipu_emu.hardware import GC200
from tests.ipu_emu.helpers.commands import ipu_emu, printed


def modelled(words: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(printed(f"clock {words} --format json"))
    return facts


def test_a_step() -> None:
    words = "mlp --batch 4 --accumulation 3 --replicas 2"
    facts = modelled(words)
    assert facts["samples"] == 4 * 3 * 2
    assert facts["modelled_cycles"] == round(facts["modelled_seconds"] * GC200.clock)
    assert sum(facts["busy_seconds_by_kind"].values()) == pytest.approx(facts["modelled_seconds"])
    assert facts["busy_seconds_by_kind"]["collectives"] > 0
    shown = printed(f"clock {words}")
    assert f"{facts['modelled_cycles']:,} cycles" in shown
    assert shown.rstrip().splitlines()[-1] == "share of the step: IPU 0 100.0%"


def test_a_step_that_fits_no_ipu_is_marked() -> None:
    words = "mlp --batch 300000 --inference"
    assert "\nDOES NOT FIT: 136%, 1.19 GiB of 897 MiB on IPU 0" in printed(f"clock {words}")
    assert modelled(words)["memory"] == {"fits": False, "bytes": ANY, "limit_bytes": GC200.sram}
    assert modelled("mlp --inference")["memory"]["fits"]


def test_a_step_of_milliseconds_is_not_in_microseconds() -> None:
    facts = modelled("resnet50 --batch 4 --accumulation 12")
    assert facts["modelled_seconds"] > 0.01
    shown = printed("clock resnet50 --batch 4 --accumulation 12")
    assert f"modelled step {1000 * facts['modelled_seconds']:.1f} ms = " in shown


@pytest.mark.parametrize("release", ["2.1", "2.3"])
def test_a_large_step_takes_as_long_as_the_closed_form_says(release: str) -> None:
    words = f"resnet50 --batch 16 --replicas 16 --accumulation 2 --optimiser momentum --release {release}"
    facts = modelled(words)
    assert facts["modelled_seconds"] == pytest.approx(facts["predicted"]["step_seconds"], rel=0.05)
    terms = facts["predicted"]["terms_seconds"]
    collectives = terms["ipu_links"] + terms["fixed"]
    assert facts["busy_seconds_by_kind"]["collectives"] == pytest.approx(collectives, rel=0.01)
    assert facts["busy_seconds_by_kind"]["host I/O"] == pytest.approx(terms["host"], rel=0.01)


def test_nominal_rates_are_faster() -> None:
    words = "mlp --batch 512 --replicas 4 --accumulation 3"
    assert modelled(f"{words} --calibration none")["modelled_seconds"] < modelled(words)["modelled_seconds"]


def test_timelines_are_drawn_and_traced(tmp_path: Path) -> None:
    words = "mlp --ipus 2 --schedule popart --accumulation 4"
    svg, trace = tmp_path / "t.svg", tmp_path / "t.json"
    printed(f"clock {words} --output {svg}")
    facts = modelled(f"{words} --output {trace}")
    events = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
    assert max(event["ts"] + event["dur"] for event in events) == pytest.approx(facts["modelled_seconds"] * 1e6)
    tasks = [event for event in events if event["cat"] in {"forward", "backward", "forward+backward"}]
    assert len(tasks) == 3 * 4
    boxes = [str(b.text) for b in ElementTree.fromstring(svg.read_text()).iter() if b.tag.endswith("title")]
    assert sum("of stage" in box for box in boxes) == 3 * 4
    done = ipu_emu(f"clock {words} --output {tmp_path}/t.png")
    assert (done.exit_code, "timelines are .svg or .json" in done.stderr) == (2, True)


def test_an_inference_pipeline() -> None:
    words = "mlp --ipus 2 --schedule interleaved --accumulation 8 --inference"
    assert modelled(words)["samples"] == 8
    assert "inference, micro-batches of 1, 8 per step" in printed(f"clock {words}")


def test_a_file(model: str) -> None:
    assert modelled(f"{model} --inference --batch 5")["samples"] == 5


def test_odd_numbers_leave_ipus_idle() -> None:
    facts = modelled("mlp --ipus 3 --replicas 3 --accumulation 2")
    assert 0 < facts["modelled_seconds"] < 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("mlp --release 9", "release '9' is not a number of an SDK; use one such as 2.3"),
        ("mlp --replicas 17", "17 replicas of 1 IPU requested; Pod16 has 16 IPUs"),
        ("mlp --ipus 2 --schedule grouped --accumulation 3", "must be at least 4, but it is 3"),
    ],
)
def test_mistakes(words: str, message: str) -> None:
    done = ipu_emu(f"clock {words}")
    assert done.exit_code == 2
    assert message in done.stderr
